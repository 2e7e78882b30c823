"""The command line. `main` is the entry point of `kbroker`; `python -m kbroker.cli` is the same.

Nothing is imported here: each command's module is loaded when that command runs.
"""

import os
import sys

__all__ = ["main"]


def main() -> int:
    """Runs the command line of this process; returns the exit status."""
    starts = sys.argv[1:2] == ["start"]
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from kbroker.cli.streams import stand_in

        stand_in(silent=starts)
    if starts:
        status = _start(sys.argv[2:])
        if status is not None:
            return status
    from kbroker.cli.tree import plain_help

    told = None if "_KBROKER_COMPLETE" in os.environ else plain_help(sys.argv[1:])
    if told is not None:
        return _show(told)
    from kbroker.cli.root import run

    return run()


def _show(text: str) -> int:
    """Help is printed without click, which would cost more than all the rest."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        from kbroker.cli.streams import forget_unwritten

        forget_unwritten()
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"kbroker: standard output: {error.strerror}\n")
        return 1
    return 0


def _start(words: list[str]) -> int | None:
    """`kbroker start` in the foreground, without click; None where there is something to tell."""
    from kbroker.cli.launch import UsageError, plain_wish, prepare, serve
    from kbroker.errors import KbrokerError

    wish = plain_wish(words)
    if wish is None:
        return None
    try:
        ready = prepare(wish)
    except (UsageError, KbrokerError, OSError):
        return None  # click says it in its way
    return serve(ready)
