"""Run one way of one scenario in this process: `python -m benchmarks.sides.one SCENARIO PLACE SHARE`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import report
from benchmarks.common import result
from benchmarks.sides.scenarios import SCENARIOS


def main() -> None:
    """Print the figure and the answer, or what is missing."""
    name, place, share = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    scenario = next(each for each in SCENARIOS if each.name == name)
    way = scenario.ways[place]
    missing = way.missing()
    if missing is None:
        try:
            told = way.measure(share)
        except ModuleNotFoundError as error:  # a command that is not a module, or a part of a library
            missing = error.name or str(error)
    result(
        {
            **({"missing": missing} if missing else told),
            "compiled": _compiled_build() if way.is_headrace else None,
        }
    )


def _compiled_build() -> str | None:
    """Return the folder whose package runs, if that is compiled."""
    import headrace

    return str(Path(headrace.__file__).parents[1]) if report.build() else None


if __name__ == "__main__":
    main()
