"""Planting: run with a fault that was put into the source, to see that it is found.

A plant is a text of a module and what it is replaced by. The module is compiled once more, and its functions
get the new code until the end of the run. So every reference to a function has the fault, and nothing is
imported twice.
"""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from .faults import Kind

__all__ = ["Plant", "planted"]


@dataclass(frozen=True)
class Plant:
    """A fault to put into the source, and how it is to be found.

    Attributes
    ----------
    what
        What is wrong with the source then.
    module, old, new
        A module, a text that is there once, and the text in its place.
    scenario
        The scenario that finds it.
    kinds
        As which kinds of fault it may be found.
    preemptions
        The bound it is found within.
    order
        The seed of an order of schedules in which it is found soon. In any other it takes longer, and no more.
    is_dear
        Whether it takes hundreds of runs, or seconds, in every order that was tried, and is for a thorough run.
    """

    what: str
    module: str
    old: str
    new: str
    scenario: str
    kinds: tuple[Kind, ...]
    preemptions: int = 1
    order: int = 0
    is_dear: bool = False


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Have a fault in the source for a time."""
    module = importlib.import_module(plant.module)
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    count = source.count(plant.old)
    if count != 1:
        raise LookupError(
            f"{plant.what!r} is planted in a text that {plant.module} has {count} times: "
            "follow the source in plants.py"
        )
    changed = source.replace(plant.old, plant.new)
    codes = {_key(code): code for code in _codes(compile(changed, module.__file__, "exec"))}
    kept: list[tuple[FunctionType, CodeType]] = []
    for function in _functions(module):
        before = function.__code__
        code = codes.get(_key(before))
        if code is not None and before.co_filename == module.__file__:  # not one around it
            kept.append((function, before))
            function.__code__ = code.replace(co_flags=before.co_flags)  # a decorator may have added some
    # For reports, which show the lines that were run.
    linecache.cache[module.__file__] = (
        len(changed),
        None,
        changed.splitlines(keepends=True),
        module.__file__,
    )
    try:
        yield
    finally:
        del linecache.cache[module.__file__]
        for function, code in kept:
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _key(code: CodeType) -> tuple[str, int]:
    """Return what tells the functions of a module apart: the two of a property have one name."""
    return code.co_qualname, code.co_argcount


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if isinstance(thing, FunctionType):
            yield thing
        elif isinstance(thing, type):
            for member in vars(thing).values():
                if isinstance(member, property) and isinstance(member.fget, FunctionType):
                    yield member.fget
                elif isinstance(member, FunctionType):
                    yield member
