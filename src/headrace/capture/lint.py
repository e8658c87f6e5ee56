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
from typing import Any

from headrace.core.operator import Operator
from headrace.core.parameters import reserved_names

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
    kind = type(operator)
    if kind.__module__.startswith("headrace.operators"):
        return []
    declared = _declared(operator)
    found: dict[tuple[str, str, int], Finding] = {}
    seen: set[Any] = set()
    left: list[Any] = [operator.declared.function if operator.is_function else kind.compute]  # type: ignore[attr-defined]
    while left:
        method = left.pop()
        source = None if method in seen else _source_of(method)
        seen.add(method)
        if source is None:
            continue
        tree, file, first = source
        owner = "" if operator.is_function else _first_argument(tree)
        findings = (
            *_attributes_in(tree, owner, operator, declared),
            *_held_in(tree, owner, operator),
            *_outer_in(tree, method),
        )
        for what, line in findings:
            found.setdefault((what, file, line), Finding(operator.name, what, file, first + line - 1))
        left += [inspect.unwrap(getattr(kind, name, int)) for name in _called_in(tree, owner)]
    return sorted(found.values(), key=lambda one: (one.file, one.line))


def _declared(operator: Operator) -> set[str]:
    """Return the attributes that compute may read: declared, assigned in start, headrace's own, and methods."""
    kind = type(operator)
    methods = (FunctionType, classmethod, staticmethod, property, type)
    return {
        *operator.spec.params,
        *operator.spec.states,
        *reserved_names(Operator),
        *_started(operator),
        *(name for name in dir(kind) if isinstance(getattr(kind, name, None), methods)),
    }


def _source_of(function: Any) -> tuple[ast.FunctionDef | ast.Lambda, str, int] | None:
    """Return the syntax tree of a function, its file, and the line at which it begins; None if it has none."""
    if not isinstance(function, FunctionType):
        return None
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            return node, function.__code__.co_filename, first
    return None


def _first_argument(tree: ast.FunctionDef | ast.Lambda) -> str:
    return tree.args.args[0].arg if tree.args.args else ""


def _attributes_of(tree: ast.AST, owner: str) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner:
            yield node


def _started(operator: Operator) -> set[str]:
    """Return the attributes that the operator assigns before its first compute."""
    methods = [getattr(type(operator), name) for name in ("start", "initialize", "setup")]
    trees = [source[0] for source in map(_source_of, methods) if source is not None]
    attributes = [node for tree in trees for node in _attributes_of(tree, _first_argument(tree))]
    return {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}


def _called_in(tree: ast.AST, owner: str) -> set[str]:
    """Return the methods of the operator that a function of it calls."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {node.attr for node in _attributes_of(tree, owner) if id(node) in called}


def _held_in(tree: ast.AST, owner: str, operator: Operator) -> Iterator[tuple[str, int]]:
    """Find numbers and texts that compute keeps in an object of `start`: nothing tells when they change."""
    started = _started(operator).difference(operator.spec.params, operator.spec.states)
    inner = {id(node): node.attr for node in _attributes_of(tree, owner) if node.attr in started}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node.value) not in inner:
            continue
        name = inner[id(node.value)]
        held = vars(operator).get(name)
        names = (*getattr(held, "__dict__", ()), *getattr(type(held), "__slots__", ()))
        if isinstance(node.ctx, ast.Store):
            yield f"compute assigns `self.{name}.{node.attr}`, an effect on the host", node.lineno
        elif node.attr in names and isinstance(getattr(held, node.attr, None), (int, float, str)):
            yield f"compute reads `self.{name}.{node.attr}`, which is not declared (spec.param)", node.lineno


def _attributes_in(
    tree: ast.AST, owner: str, operator: Operator, declared: set[str]
) -> Iterator[tuple[str, int]]:
    """Find what a function does with attributes of the operator."""
    for node in _attributes_of(tree, owner):
        name = node.attr
        if isinstance(node.ctx, ast.Store):
            if name in operator.spec.params:
                yield f"compute assigns its parameter `self.{name}`, which a replay does not", node.lineno
            elif name not in operator.spec.states:
                yield f"compute assigns `self.{name}`, which is not declared (spec.state)", node.lineno
        elif name in operator._headrace.knobs.types:
            yield f"compute reads `self.{name}` on the host, and it is a knob (context.knob)", node.lineno
        elif name not in declared:
            yield f"compute reads `self.{name}`, which is not declared", node.lineno


def _outer_in(tree: ast.AST, function: FunctionType) -> Iterator[tuple[str, int]]:
    """Find effects on objects, and variables of the module or of a surrounding function that may change."""
    around = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield f"compute assigns {', '.join(node.names)} outside of it", node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Attribute) and _CHANGES.fullmatch(node.func.attr):
                yield f"compute calls `{ast.unparse(node.func)}`, an effect on the host", node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id != "__class__":
            try:
                value = around[node.id].cell_contents if node.id in around else function.__globals__[node.id]
            except (KeyError, ValueError):  # it is a variable of its own, or not assigned yet
                continue
            is_fixed = isinstance(value, (ModuleType, Logger)) or callable(value) or hasattr(value, "source")
            if not is_fixed and not node.id.isupper():
                yield f"compute reads `{node.id}`, a variable outside of it", node.lineno
