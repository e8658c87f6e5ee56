"""The lint: what in the code of a compute looks as if it broke the contract of captured operators.

It reads the source of `compute` and of the methods that it calls, and compares what they read and assign with what
the operator declares. It advises and never decides: what it does not see is found when a replay is compared with a
compute, and what it sees may be right.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from logging import Logger
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from headrace.core.operator import Operator
from headrace.core.parameters import reserved_names

if TYPE_CHECKING:
    from collections.abc import Callable

_CHANGES = re.compile("append|extend|insert|update|add|pop|popleft|remove|clear|put|get_nowait|send")


@dataclass(frozen=True)
class Finding:
    """Something in the code of a compute that may break the contract."""

    operator: str
    what: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"operator {self.operator!r}: {self.what}: {self.file.rpartition('/')[2]}, line {self.line}"


def lint(operator: Operator) -> list[Finding]:
    """Return what may break the contract in the compute of an operator; nothing for headrace's own."""
    if type(operator).__module__.startswith("headrace.operators"):
        return []
    function: Any = operator.declared.function if operator.is_function else type(operator).compute  # type: ignore[attr-defined]
    known = _Declared(operator)
    found: dict[tuple[str, str, int], Finding] = {}
    seen: set[Any] = set()
    left = [function]
    while left:
        method = left.pop()
        if method in seen or not isinstance(method, FunctionType):
            continue
        seen.add(method)
        source = _source_of(method)
        if source is None:
            continue
        tree, file, first = source
        for what, line in _findings_in(tree, method, known, left.append):
            found.setdefault((what, file, line), Finding(operator.name, what, file, first + line - 1))
    return sorted(found.values(), key=lambda one: (one.file, one.line))


class _Declared:
    """What an operator declares."""

    def __init__(self, operator: Operator) -> None:
        self.kind = type(operator)
        self.values = vars(operator)
        self.is_function = operator.is_function
        self.parameters = set(operator.spec.params)
        self.states = set(operator.spec.states)
        self.knobs = set(operator._headrace.knobs.types)
        started = (getattr(self.kind, name) for name in ("start", "initialize", "setup"))
        self.started = {name for method in started for name in _assigned_in(method)}
        self.reserved = reserved_names(Operator)

    def is_declared(self, name: str) -> bool:
        """Return whether compute may read an attribute."""
        if name in self.parameters | self.states | self.started or name in self.reserved:
            return True
        return isinstance(
            getattr(self.kind, name, None), (FunctionType, classmethod, staticmethod, property, type)
        )


def _source_of(function: FunctionType) -> tuple[ast.FunctionDef | ast.Lambda, str, int] | None:
    """Return the syntax tree of a function, its file, and the line at which it begins; None if it has none."""
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            return node, function.__code__.co_filename, first
    return None


def _assigned_in(function: Any) -> set[str]:
    source = _source_of(function) if isinstance(function, FunctionType) else None
    if source is None:
        return set()
    owner = _first_argument(source[0])
    return {name for name, node in _attributes_of(source[0], owner) if isinstance(node.ctx, ast.Store)}


def _first_argument(tree: ast.FunctionDef | ast.Lambda) -> str:
    return tree.args.args[0].arg if tree.args.args else ""


def _attributes_of(tree: ast.AST, owner: str) -> Iterator[tuple[str, ast.Attribute]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner:
            yield node.attr, node


def _findings_in(
    tree: ast.FunctionDef | ast.Lambda,
    function: FunctionType,
    known: _Declared,
    follow: Callable[[Any], None],
) -> Iterator[tuple[str, int]]:
    owner = "" if known.is_function else _first_argument(tree)
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    outer = {id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for name, node in _attributes_of(tree, owner):
        if isinstance(node.ctx, ast.Store):
            if name in known.parameters:
                yield f"compute assigns its parameter `self.{name}`, which a replay does not", node.lineno
            elif name not in known.states:
                yield f"compute assigns `self.{name}`, which is not declared (spec.state)", node.lineno
        elif name in known.knobs:
            yield f"compute reads `self.{name}` on the host, and it is a knob (context.knob)", node.lineno
        elif not known.is_declared(name):
            yield f"compute reads `self.{name}`, which is not declared", node.lineno
        elif id(node) in called:
            follow(inspect.unwrap(getattr(known.kind, name, int)))
    for name, node in _attributes_of(tree, owner):
        yield from _held_in(name, outer.get(id(node)), known)
    for call in called.values():
        func = call.func
        if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Attribute):
            continue
        if _CHANGES.fullmatch(func.attr):
            yield f"compute calls `{ast.unparse(func)}`, an effect on the host", call.lineno
    yield from _globals_in(tree, function)


def _held_in(name: str, outer: ast.Attribute | None, known: _Declared) -> Iterator[tuple[str, int]]:
    """Find numbers and texts that compute keeps in an object of `start`: nothing tells when they change."""
    if outer is None or name not in known.started - known.parameters - known.states:
        return
    held = known.values.get(name)
    names = (*getattr(held, "__dict__", ()), *getattr(type(held), "__slots__", ()))
    what = f"`self.{name}.{outer.attr}`"
    if isinstance(outer.ctx, ast.Store):
        yield f"compute assigns {what}, an effect on the host", outer.lineno
    elif outer.attr in names and isinstance(getattr(held, outer.attr, None), (int, float, str)):
        yield f"compute reads {what}, which is not declared (spec.param)", outer.lineno


def _globals_in(tree: ast.AST, function: FunctionType) -> Iterator[tuple[str, int]]:
    """Find variables of the module or of a surrounding function that may change."""
    around = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield f"compute assigns {', '.join(node.names)} outside of it", node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in around and node.id != "__class__":
                try:
                    value = around[node.id].cell_contents
                except ValueError:  # not assigned yet
                    continue
            elif node.id in function.__globals__:
                value = function.__globals__[node.id]
            else:
                continue
            is_fixed = isinstance(value, (ModuleType, Logger)) or callable(value) or hasattr(value, "source")
            if not is_fixed and not node.id.isupper():
                yield f"compute reads `{node.id}`, a variable outside of it", node.lineno
