"""Record what the Holoscan SDK does with the programs of the corpus into `recorded.json`.

    ORACLE_PYTHON=PYTHON python -m packages.holoscan.tests.corpus.record [PROGRAM ...]

PYTHON is an interpreter that has the SDK. Each program runs in a process of its own, because a failed run leaves
that system in a state that the next one would see. With names, only those programs are recorded again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from packages.holoscan.tests.corpus.running import PROGRAMS, ROOT, Outcome, outcome

RECORDED = Path(__file__).parent / "recorded.json"


def on_the_sdk(name: str, python: str) -> Outcome:
    """Run a program with an interpreter that has the SDK."""
    command = [python, "-m", "packages.holoscan.tests.corpus.record", "--here", name]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return {"ended": "never"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    if "-v" in sys.argv:
        print(done.stderr, file=sys.stderr)
    return json.loads(lines[0][8:]) if lines else {"ended": "the process died"}


def main() -> None:
    if sys.argv[1:2] == ["--here"]:
        print("\nOUTCOME " + json.dumps(outcome(sys.argv[2])))
        return
    python = os.environ["ORACLE_PYTHON"]
    recorded: dict[str, Outcome] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    chosen = [name for name in sys.argv[1:] if name != "-v"] or list(PROGRAMS)
    for name in PROGRAMS:
        if any(name == one or name.partition(".")[0] == one for one in [*chosen]):
            recorded[name] = on_the_sdk(name, python)
            print(name, json.dumps(recorded[name]), flush=True)
    lines = [f"  {json.dumps(name)}: {json.dumps(recorded[name])}" for name in PROGRAMS if name in recorded]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
