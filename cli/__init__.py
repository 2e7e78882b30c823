"""The command line. `main` is the entry point of `kbroker`; `python -m kbroker.cli` is the same.

Nothing is imported here: each command's module is loaded when that command runs.
"""

__all__ = ["main"]


def main() -> int:
    """Runs the command line of this process; returns the exit status."""
    from kbroker.cli.root import run

    return run()
