"""A simulation of clients that drives the group coordinators without sockets, threads or a clock.

    python -m tests.model [classic|consumer|mixed [SEED [STEPS [GROUPS]]]]

Hundreds of clients of both protocols join, leave, crash, fall silent, commit and come back as
zombies, while topics change, appends fail and the coordinator is restarted from its log in the
middle, with whatever had not been flushed lost. Everything follows from the seed. `oracle` knows
what clients may be told, `structure` what the state must look like and that the log gives it back;
`canaries` break the coordinator on purpose to show that both notice.
"""
