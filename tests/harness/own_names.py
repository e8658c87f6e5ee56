"""Programs whose classes use every name that is not documented, as attributes and as methods.

The names are those that a base class has and does not document, and those that its inner class has
(`headrace.core.construction`), with and without an underscore: names that a program may well choose.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MINE = object()
"""What the programs assign."""
WHEN = ("before", "__init__", "setup", "compose", "initialize", "start", "check", "compute", "method")
"""Where a name is used: before the constructor of the base is called, after it, in the methods, and as a method."""
_NAME = r"\*{0,2}\w+"


@functools.cache
def documented(kind: type) -> set[str]:
    """Return the names that a class, its bases and their docstrings document."""
    found: set[str] = set()
    for base in filter(_is_ours, kind.__mro__):
        definition = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(definition, ast.ClassDef)
        methods = [
            each for each in definition.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        found.update(each.name for each in methods if ast.get_docstring(each))
        for body in (definition.body, *(method.body for method in methods)):
            found.update(_with_texts(body))
        text = inspect.getdoc(base) or ""
        lines = [line for line in text.splitlines() if re.fullmatch(rf"{_NAME}(, {_NAME})*", line)]
        found.update(name for line in lines for name in re.findall(r"\w+", line))
    return {name for name in found if not name.startswith("_")}


def _with_texts(body: list[ast.stmt]) -> Iterable[str]:
    """Yield the attributes that are assigned right before a text."""
    for statement, text in pairwise(body):
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [getattr(statement, "target", None)]
            )
            for target in targets:
                yield target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("headrace", "headrace_holoscan")


def undocumented(kind: type, made: Iterable[Any] = (), known: set[str] | None = None) -> set[str]:
    """Return the names that a class, its bases and some of its objects have and do not document.

    That is, without those of Python (``__init__``), of notebooks (``_repr_html_``), and ``_headrace`` itself.
    """
    found = {name for base in filter(_is_ours, kind.__mro__) for name in _names(base)}
    found |= {name for each in made for name in vars(each)}
    known = documented(kind) if known is None else known
    return {name for name in found - known - {"_headrace"} if not name.endswith("_")}


def of_inner_class(kind: Any, made: Iterable[Any] = (), known: set[str] | None = None) -> set[str]:
    """Return the names in the inner class of a class, with and without an underscore, that it does not document."""
    found = {name for base in kind._headrace.__mro__[:-1] for name in _names(base)}
    found |= {name for each in made for name in vars(each._headrace)}
    known = documented(kind) if known is None else known
    return {
        spelled
        for name in found
        for spelled in (name, f"_{name}")
        if spelled not in known | {"_headrace"} and not name.startswith("__")
    }


def _names(kind: type) -> set[str]:
    return {*vars(kind), *inspect.get_annotations(kind)}


@dataclass
class Names:
    """What the classes of a program use: which names, and where."""

    names: dict[str, set[str]]
    when: str

    def own(self, base: Any) -> Any:
        """Return a class that uses the names of one of the bases."""
        names = sorted(self.names.get(base.__name__, ()))
        when = self.when

        def use(self: Any) -> None:
            for name in names:
                setattr(self, name, MINE)

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            if when == "before":
                use(self)
            super(own, self).__init__(*args, **kwargs)
            if when == "__init__":
                use(self)

        def using(method: str) -> Any:
            def call(self: Any, *args: Any) -> Any:
                if when == method:
                    use(self)
                return getattr(super(own, self), method)(*args)

            return call

        members: dict[str, Any] = {"__init__": __init__}
        for method in ("setup", "compose", "initialize", "start", "check"):
            if hasattr(base, method):
                members[method] = using(method)
        if when == "method":
            members |= {name: lambda self: MINE for name in names}
        own = type("Own", (base,), members | {"use": use if when == "compute" else lambda self: None})
        return own


def check_kept(names: Names, made: Iterable[Any]) -> None:
    """Raise if headrace has changed what a program assigned."""
    for each in made:
        base = next(kind for kind in type(each).__mro__ if kind.__name__ in names.names and _is_ours(kind))
        used = names.names[base.__name__]
        for name in used:
            value = getattr(each, name, None)
            value = value() if names.when == "method" else value
            assert value is MINE, f"{base.__name__}.{name} is {value!r} after a run: {names.when}"
