"""The command line. `main` is the entry point of `kbroker`; `python -m kbroker.cli` is the same.

Nothing is imported here: each command's module is loaded when that command runs.
"""

import sys

__all__ = ["main"]


def main() -> int:
    """Runs the command line of this process; returns the exit status."""
    if sys.argv[1:2] == ["start"]:
        status = _start(sys.argv[2:])
        if status is not None:
            return status
    from kbroker.cli.root import run

    return run()


def _start(words: list[str]) -> int | None:
    """`kbroker start` in the foreground, without click; None where there is something to tell."""
    from kbroker.cli.launch import UsageError, plain_wish, prepare, serve
    from kbroker.errors import KbrokerError

    wish = plain_wish(words)
    if wish is None:
        return None
    try:
        _, arguments = prepare(wish)
    except (UsageError, KbrokerError, OSError):
        return None  # click says it in its way
    return serve(arguments)
