"""`python -m perf.spinning ...`: the broker's own process with one thread that spins in Python.

The thread never lets go of the GIL of itself; the interpreter takes it away every few
milliseconds for whoever asks. Arguments are those of `python -m kbroker.server`.
"""

from __future__ import annotations

import signal
import sys
import threading

from kbroker.server.__main__ import main


def spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    # The thread must not be the one that a signal ends the process through.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    threading.Thread(target=spin, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
