"""``python -m headrace_holoscan app.py``: run a program that was written for the Holoscan SDK."""

from __future__ import annotations

import sys

from headrace.cli import main
from headrace_holoscan.alias import install

if __name__ == "__main__":
    # As with Python itself, what follows the program belongs to it.
    install()
    sys.exit(main(["run", *sys.argv[1:2], "--", *sys.argv[2:]]))
