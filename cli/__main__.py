"""`python -m kbroker.cli`."""

import sys

from kbroker.cli import main

sys.exit(main())
