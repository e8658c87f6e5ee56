"""Run the python blocks of a page, in order, as one program. Blocks may import the modules in docs/programs; those
that the page links to lie in the folder in which it runs, as if a reader had saved them.

A block fenced as ``console run`` is a session of a shell: the lines after ``$`` are run by bash, in the same
folder, and the other lines are what they print; ``headrace`` is the command of this source tree. It may need
something, as a python block may.

A block fenced as ``output`` right after a python block is what that block prints, word for word. A block fenced as
``python skip`` is shown and not run. One fenced as ``python needs=cupy,gpu`` is run where those can be had: each is
a module that is installed, or ``gpu``, a real GPU, or ``opencv-cuda``, an OpenCV that finds one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.harness import PATIENCE
from tests.harness.libraries import numba_works
from tests.harness.processes import run_forked

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
MARK = "--- end of block {} ---"


@dataclass
class Block:
    """A python block of a page, or a session of a shell as one."""

    line: int
    code: str
    output: str | None = None
    needs: frozenset[str] = frozenset()


def blocks(text: str) -> list[Block]:
    """Return the python blocks of a page that are to be run."""
    found: list[Block] = []
    shown = False  # whether the last python block was one that is only shown
    for match in FENCE.finditer(text):
        language, *options = match[1].split()
        if language == "python":
            shown = "skip" in options
            if not shown:
                found.append(Block(text.count("\n", 0, match.start(2)), match[2], needs=_needs(options)))
        elif language == "console" and "run" in options:
            shown = True  # an output block after it would belong to nothing
            session = _session(text.count("\n", 0, match.start(2)), match[2])
            found.append(replace(session, needs=_needs(options)))
        elif language == "output" and found and not shown:
            found[-1].output = match[2]
    return found


def _needs(options: list[str]) -> frozenset[str]:
    return frozenset(
        need
        for option in options
        if option.startswith("needs=")
        for need in option.removeprefix("needs=").split(",")
    )


def _session(line: int, text: str) -> Block:
    """Return a session of a shell as a block of Python that runs its commands."""
    lines = text.splitlines(keepends=True)
    commands = [each.removeprefix("$ ") for each in lines if each.startswith("$ ")]
    script = 'exec 2>&1\nheadrace() { "${PYTHON[@]}" -m headrace "$@"; }\n' + "".join(commands)
    client = str(ROOT / "tests" / "harness" / "fork_client.py")
    code = (
        "import os as _os, shlex as _shlex, subprocess as _subprocess, sys as _sys\n"
        "_forks = 'FORK_SERVER' in _os.environ\n"
        f"_python = [_sys.executable, *(['-IS', {client!r}] if _forks else [])]\n"
        f"_script = 'PYTHON=(' + _shlex.join(_python) + ')\\n' + {script!r}\n"
        "_fds = [int(_os.environ['FORK_SERVER'])] if _forks else []\n"
        "_done = _subprocess.run(['bash', '-c', _script], stdout=_subprocess.PIPE, text=True, pass_fds=_fds)\n"
        "print(_done.stdout, end='')\n"
    )
    return Block(line, code, "".join(each for each in lines if not each.startswith("$ ")))


def needs_of(page: Path) -> dict[str, int]:
    """Return what the blocks of a page need, and how many blocks need it."""
    counted: dict[str, int] = {}
    for block in blocks(page.read_text()):
        for need in block.needs:
            counted[need] = counted.get(need, 0) + 1
    return counted


@cache
def has(need: str, gpu: bool) -> bool:
    """Return whether what a block needs can be had."""
    if need.partition(".")[0] == "numba" and not numba_works():
        return False
    if need == "gpu":
        return gpu
    if need != "opencv-cuda":
        return find_spec(need.partition(".")[0]) is not None and find_spec(need) is not None
    code = "import cv2; assert cv2.cuda.getCudaEnabledDeviceCount() > 0"
    tried = subprocess.run(
        [sys.executable, "-c", code], env=_environment(gpu), capture_output=True, timeout=PATIENCE
    )
    return tried.returncode == 0


def run_page(page: Path, folder: Path, gpu: bool) -> None:
    """Run a page's blocks, in a folder, as far as what they need is there; raise what is wrong with them."""
    parts = [block for block in blocks(page.read_text()) if all(has(need, gpu) for need in block.needs)]
    if not parts:
        return
    program = []
    for number, block in enumerate(parts):
        # Compiled with blank lines before it, so that a traceback shows the line of the page.
        source = "\n" * block.line + block.code
        program.append(f"exec(compile({source!r}, {str(page)!r}, 'exec'))")
        program.append(f"print({MARK.format(number)!r}, flush=True)")
    for name in set(re.findall(r"\]\(programs/(\w+\.py)\)", page.read_text())):
        (folder / name).write_text((page.parent / "programs" / name).read_text())
    script = folder / "page.py"
    script.write_text("\n".join(program))
    environment = {
        **_environment(gpu),
        "HEADRACE_TOPICS": str(folder / "topics"),
        # An address of its own on the loopback interface.
        "HEADRACE_ADDRESS": f"127.{os.getpid() >> 16 & 127}.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}",
    }
    needs = {need for block in parts for need in block.needs}
    if gpu or "ray" in needs:  # nothing of CUDA survives a fork, and Ray does not always start after one
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    else:
        done = run_forked(script, cwd=folder, modules=sorted({"torch"} & needs), **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rest = done.stdout
    for number, block in enumerate(parts):
        printed, _, rest = rest.partition(MARK.format(number) + "\n")
        if block.output is not None:
            if "ray" in block.needs:  # Ray prints lines of its own among those of the program
                own = block.output.splitlines(keepends=True)
                printed = "".join(line for line in printed.splitlines(keepends=True) if line in own)
            assert printed == block.output, (
                f"{page.name}, the block at line {block.line} printed something else:\n{printed}"
            )


def _environment(gpu: bool) -> dict[str, str]:
    paths = [str(ROOT / "src"), str(DOCS / "programs"), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "PYTHONPATH": path, "HEADRACE_DEVICE": "cuda" if gpu else "sim"}
