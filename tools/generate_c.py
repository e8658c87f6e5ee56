"""Write the C of the compiled build: `python tools/generate_c.py FOLDER`. Needs mypy (mypyc) and setuptools.

The folder then holds all that a machine with Python's headers and a C compiler needs, and no more: the C of our
modules, mypyc's runtime, `extensions.json`, which says what is made of what, and `compile_c.py`, which makes it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tomllib
from pathlib import Path

import mypyc
from mypyc.build import mypycify

ROOT = Path(__file__).resolve().parents[1]


def generate(folder: Path) -> None:
    """Write everything into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]
    os.chdir(ROOT / "src")  # a module's name is its path from here
    files = [name.removeprefix("src/") for name in hook["include"]]
    options = [f"--cache-dir={ROOT / '.mypy_cache'}", *hook["mypy-args"]]
    extensions = mypycify([*options, *files], target_dir=str(folder), **hook["options"])
    runtime = Path(mypyc.__file__).parent / "lib-rt"
    ours = shutil.ignore_patterns("*.py", "*.cc", "*.so", "*.pyc", "__pycache__", "build", "test*")
    shutil.copytree(runtime, folder / "lib-rt", ignore=ours)
    shutil.copy(Path(__file__).with_name("compile_c.py"), folder)
    made_of = {
        extension.name: [str(Path(source).relative_to(folder)) for source in extension.sources]
        for extension in extensions
    }
    described = {"python": platform.python_version_tuple()[:2], "extensions": made_of}
    (folder / "extensions.json").write_text(json.dumps(described, indent=2) + "\n")


if __name__ == "__main__":
    generate(Path(sys.argv[1]).resolve())
