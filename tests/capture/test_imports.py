"""Every module of capture can be the first one that is imported.

Modules that import each other work in one order and fail in another. In the compiled build such a failure may end
the process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headrace.capture

ROOT = Path(headrace.capture.__file__).parent

# Each in a child of its own, which begins with NumPy and nothing of headrace imported.
SCRIPT = """
import importlib, os, sys

import numpy

for name in sys.argv[1:]:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        importlib.import_module(name)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(name)
"""


def test_every_module_can_be_imported_first() -> None:
    names = [f"headrace.capture.{file.stem}" for file in sorted(ROOT.glob("[a-z]*.py"))]
    assert len(names) > 8
    done = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
