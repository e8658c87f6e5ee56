"""The files that a run writes: what starts again in a run goes on in another file than before.

A run replaces the files of the runs before it. In one run, an operator may be started again after an error, and so
may the process of a fragment. What was written until then is not lost: they go on in ``run-2.mp4`` next to
``run.mp4``, or in the first file of such a name that there is not.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.operator import Operator

PART_RESTARTS = "HEADRACE_PART_RESTARTS"
"""The variable of the process of a part that says how often the part was started again."""
_log = logging.getLogger("headrace.files")


def path_of_start(path: str | Path, operator: Operator | None = None) -> Path:
    """Return the file that an operator, or else what watches the run, writes to after it has started."""
    path = Path(path)
    number = number_of_start(
        lambda number: numbered(path, number).exists(), operator, f"{str(path)!r} has what was written before"
    )
    return numbered(path, number)


def number_of_start(exists: Callable[[int], bool], operator: Operator | None, what: str) -> int:
    """Return the number of the files that are written after a start: 1, or the first after another start."""
    node = None if operator is None else operator._headrace.node
    is_first = os.environ.get(PART_RESTARTS, "0") == "0" and (node is None or not node.counts.restarts)
    number = 1 if is_first else next(number for number in itertools.count(1) if not exists(number))
    if number > 1:
        _log.info("%s; what follows goes to number %d", what, number)
    return number


def numbered(path: Path, number: int) -> Path:
    """Return the path of a file of a number: the first has the name itself, the second has ``-2`` in it."""
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return path if number == 1 else path.with_name(f"{path.name.removesuffix(suffix)}-{number}{suffix}")
