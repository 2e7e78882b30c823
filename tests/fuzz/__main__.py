"""python -m tests.fuzz TARGET SEED ITERATIONS"""

import sys

from tests.fuzz import files, offsets
from tests.fuzz.engine import fuzz
from tests.fuzz.targets import CANARIES, TARGETS

name, seed, iterations = sys.argv[1:]
fuzz({**TARGETS, **files.TARGETS, **offsets.TARGETS, **CANARIES}[name], int(seed), int(iterations))
