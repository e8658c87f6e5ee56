"""``python -m penstock.cli``."""

import sys

from penstock.cli import main

sys.exit(main())
