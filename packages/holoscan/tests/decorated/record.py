"""Write what the SDK prints to ``printed.json``; run this file with a Python that has holoscan.

The SDK's module imports CuPy, which these programs do not use: an empty module stands for it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

sys.modules.setdefault("cupy", ModuleType("cupy"))

if __name__ == "__main__":
    import programs

    found = {compose.__name__: programs.printed(compose) for compose in programs.PROGRAMS}
    Path(__file__).with_name("printed.json").write_text(json.dumps(found, indent=1) + "\n")
