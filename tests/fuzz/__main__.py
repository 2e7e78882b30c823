"""python -m tests.fuzz TARGET SEED ITERATIONS"""

import sys

from tests.fuzz import client_answers, files, offsets, produce_answers, requests
from tests.fuzz.engine import fuzz
from tests.fuzz.targets import CANARIES, TARGETS

name, seed, iterations = sys.argv[1:]
rooms = (files, offsets, requests, produce_answers, client_answers)
known = {**TARGETS, **{k: v for room in rooms for k, v in room.TARGETS.items()}, **CANARIES}
fuzz(known[name], int(seed), int(iterations))
