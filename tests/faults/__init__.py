"""What may befall a broker, each fault with the promises that it must not break.

    python -m tests.faults              # the short form
    python -m tests.faults --full       # the numbers of the catalogue
    python -m tests.faults F2 F11       # only these

Real processes, real files, real clients. The clients' side writes down what it was told, and that
history is held against what the broker serves afterwards. Every fault has a control: the same
judgement where the guarantee is known not to hold, which must find something. `catalog.py` is the
one list; its tests stand here, or in the room whose subject they are.
"""
