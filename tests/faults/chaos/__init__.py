"""Chaos: disk calls of a broker are delayed at random under every kind of load.

    python -m tests.faults.chaos --seed 7 --minutes 60     # rounds of seeds 7, 8, 9, ...
    python -m tests.faults.chaos --seed 7 --scenario kill  # one round of a named scenario

A round starts a broker with tests/support/delays.c in front of the C library, puts load on it,
delays its disk calls, may stop or kill it in the middle, and ends the delays. Five seconds later
everything must work. Clients keep histories of what was answered, and the broker is compared with
them at the end and after a restart. A round is a function of its seed, as far as threads allow.
"""
