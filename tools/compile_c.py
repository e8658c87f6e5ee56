"""Compile what `generate_c.py` wrote: `python compile_c.py FOLDER INTO`. Needs a C compiler and Python's headers.

FOLDER is the one it wrote; INTO is where the package `penstock` is, to put the extension modules beside its files.
Nothing but the standard library is used, so that it also runs where neither mypy nor setuptools is installed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# As Python builds extension modules, and without warnings: mypyc leaves labels and variables behind unused.
FLAGS = ["-O3", "-DNDEBUG", "-fwrapv", "-fPIC", "-shared", "-w"]


def compile_all(folder: Path, into: Path) -> None:
    """Make every extension module."""
    made_of = json.loads((folder / "extensions.json").read_text())
    compiler = shlex.split(os.environ.get("CC", "cc"))
    headers = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    includes = [f"-I{path}" for path in (folder, folder / "lib-rt", *sorted(headers))]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")

    def compile_one(name: str) -> None:
        target = into / (name.replace(".", "/") + suffix)
        target.parent.mkdir(parents=True, exist_ok=True)
        sources = [str(folder / source) for source in made_of[name]]
        subprocess.run([*compiler, *FLAGS, *includes, *sources, "-o", str(target)], check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, made_of))


if __name__ == "__main__":
    compile_all(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
