"""``python -m penstock.cli``."""

import sys

from penstock.cli import main

try:
    status = main()
    sys.stdout.flush()
except BrokenPipeError:  # the reader has seen enough, as `head` has
    sys.stdout = None
    status = 0
sys.exit(status)
