"""``python -m headrace.compat.holoscan app.py``: run a program that was written for the Holoscan SDK."""

from __future__ import annotations

import sys

from headrace.cli import main

if __name__ == "__main__":
    # As with Python itself, what follows the program belongs to it.
    sys.exit(main(["run", "--as-holoscan", *sys.argv[1:2], "--", *sys.argv[2:]]))
