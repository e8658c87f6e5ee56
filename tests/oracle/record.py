"""Record what the Holoscan SDK does with `programs.py` into `recorded.json`.

Run it with an interpreter that has the SDK: ``python tests/oracle/record.py``. Each program runs in a
process of its own, because a failed run leaves that system in a state a second one would see.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run_one(name: str, package: str) -> list:
    sys.path.insert(0, str(HERE))
    import programs

    log: list = []
    try:
        programs.PROGRAMS[name](programs.load(package), log)
    except Exception as error:
        log.append({"raised": type(error).__name__})
    return json.loads(json.dumps(log))


def main() -> None:
    if len(sys.argv) > 2:
        print("OUTCOME " + json.dumps(run_one(sys.argv[2], sys.argv[1])))
        return
    package = sys.argv[1] if len(sys.argv) > 1 else "holoscan"
    sys.path.insert(0, str(HERE))
    import programs

    recorded = {}
    for name in programs.PROGRAMS:
        try:
            done = subprocess.run(
                [sys.executable, __file__, package, name],
                capture_output=True,
                text=True,
                timeout=20,
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
            recorded[name] = json.loads(lines[0][8:]) if lines else {"died": done.returncode}
        except subprocess.TimeoutExpired:
            recorded[name] = "never ends"
        print(name, recorded[name], flush=True)
    (HERE / "recorded.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
