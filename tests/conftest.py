"""Tests run on the simulated device unless they ask for another."""

import os

os.environ.setdefault("PENSTOCK_DEVICE", "sim")
