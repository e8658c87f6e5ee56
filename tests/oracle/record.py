"""Record what the Holoscan SDK does with `programs` into `recorded.json`.

Run it with an interpreter that has the SDK: ``python -m tests.oracle.record``. Each program runs in a
process of its own, because a failed run leaves that system in a state that the next one would see.
Where the SDK needs a wrapper around the interpreter, name it in ``ORACLE_PYTHON``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.oracle import programs

HERE = Path(__file__).parent


def outcome(name: str, package: str) -> Any:
    """Run one program and return what it left in its log, as JSON has it."""
    log: list[Any] = []
    try:
        programs.PROGRAMS[name](programs.load(package), log)
    except ZeroDivisionError:
        # The one that operators in the programs raise on purpose.
        log.append("raised ZeroDivisionError")
    except Exception:
        log.append("refused")
    return json.loads(json.dumps(log))


def main() -> None:
    if len(sys.argv) == 3:
        print("OUTCOME " + json.dumps(outcome(sys.argv[1], sys.argv[2])))
        return
    interpreter = os.environ.get("ORACLE_PYTHON", sys.executable)
    recorded = {}
    for name in programs.PROGRAMS:
        command = [interpreter, "-m", "tests.oracle.record", name, "holoscan"]
        try:
            done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, timeout=20)
        except subprocess.TimeoutExpired:
            recorded[name] = "never ends"
            continue
        lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
        recorded[name] = json.loads(lines[0][8:]) if lines else "died"
        print(name, recorded[name], flush=True)
    lines = [f"  {json.dumps(name)}: {json.dumps(result)}" for name, result in recorded.items()]
    (HERE / "recorded.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
