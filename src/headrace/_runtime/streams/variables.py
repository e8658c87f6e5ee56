"""The variables of an operator that requests its first stream late, or leaves a shared one (`NodeStreams`).

Those of its compute are read from the stack frames that led here, from the innermost outwards. The frames of
`headrace._runtime` are skipped; in the compiled build there are none. The walk ends at the modules from which a run
calls a compute. Those are never compiled, so both builds find the end.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from headrace.core.resource import Resource

if TYPE_CHECKING:
    from headrace.core.operator import Operator

_PACKAGE = "headrace."
_OURS = "headrace._runtime."
_ENDS = (
    "headrace._runtime.scheduling.scheduled_run",
    "headrace._runtime.lifecycle.run",
    "headrace._runtime.scheduling.threads",
)
# What the import system puts into a module. A loader may lead to all of a program: pytest's, to every test.
_OF_IMPORTS = ("__builtins__", "__loader__", "__spec__")


def variables_of_compute() -> list[dict[str, Any]]:
    """Return the variables of the program's functions that led here, up to the scheduler that called them."""
    return [dict(frame.f_locals) for frame in _frames()]


def modules_of_compute() -> list[dict[str, Any]]:
    """Return the variables of the modules of those functions, except headrace's."""
    found = {id(frame.f_globals): frame.f_globals for frame in _frames()}
    modules = [
        dict(module) for module in found.values() if not module.get("__name__", "").startswith(_PACKAGE)
    ]
    for module in modules:
        for name in _OF_IMPORTS:
            module.pop(name, None)
    return modules


def modules_of(operator: Operator) -> list[dict[str, Any]]:
    """Return the variables of the modules that an operator is written in, except headrace's."""
    names = {base.__module__ for base in type(operator).__mro__}
    if operator.is_function:
        names.add(operator.declared.function.__module__)  # type: ignore[attr-defined]
    names = {name for name in names if name != "builtins" and not name.startswith(_PACKAGE)}
    return [dict(vars(sys.modules[name])) for name in names if name in sys.modules]


def variables_beside(operator: Operator) -> list[dict[str, Any]]:
    """Return the attributes of the fragment of an operator, and of its resources and conditions."""
    held = [each for each in dict(vars(operator)).values() if isinstance(each, Resource)]
    holders = [operator.fragment, *operator.resources.values(), *operator.conditions.values(), *held]
    return [dict(vars(holder)) for holder in holders]


def attributes_of_class(kind: type) -> list[dict[str, Any]]:
    """Return the attributes of a class and of its bases, except headrace's."""
    return [dict(vars(base)) for base in kind.__mro__ if not base.__module__.startswith(_PACKAGE)]


def _frames() -> list[FrameType]:
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_ENDS):
            break
        if not module.startswith(_OURS):
            found.append(frame)
        frame = frame.f_back
    return found
