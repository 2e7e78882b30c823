"""`python -m perf.spinning thread|process ...`: the broker beside something that spins in Python.

A thread of the broker's own process never lets go of the GIL of itself: the interpreter takes it
away every few milliseconds for whoever asks. A child process has a GIL of its own, and the same
share of the processors, being of the same session. Further arguments are those of
`python -m kbroker.server`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

from kbroker.server.__main__ import main

#: Ends soon after the broker, however that ended.
CHILD = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    # The thread must not be the one that a signal ends the process through.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    if sys.argv[1] == "thread":
        threading.Thread(target=spin, daemon=True).start()
    else:
        subprocess.Popen([sys.executable, "-c", CHILD])
    sys.exit(main(sys.argv[2:]))
