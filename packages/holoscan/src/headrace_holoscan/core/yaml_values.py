"""The values of YAML as the SDK reads them: by their text alone, quoted or not.

``"1"`` is the number 1 and ``"yes"`` is true; 010 is 8; 1_000, 1:30 and a date are text. The arguments of an
operator go through the same conversion there, so ``gain=2.0`` arrives as 2, and a tuple as a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

_BOOLEANS = {
    spelled: value
    for value, names in ((True, ("y", "yes", "true", "on")), (False, ("n", "no", "false", "off")))
    for name in names
    for spelled in (name, name.upper(), name.capitalize())
}
_INFINITIES = {
    f"{sign}.{name}": float(f"{sign}inf") for sign in ("", "+", "-") for name in ("inf", "Inf", "INF")
}
_NANS = (".nan", ".NaN", ".NAN")
_NULLS = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(r"\s*([-+]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\s*$")
_FLOAT = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*$")


def value_of_text(text: str) -> Any:
    """Return what a scalar stands for."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    found = _INTEGER.match(text)
    if found is not None:
        sign, digits = found.groups()
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
        number = int(digits, base) * (-1 if sign == "-" else 1)
        return number if -(2**63) <= number < 2**63 else float(number)
    if _FLOAT.match(text):
        return float(text)
    if text in _NANS:
        return float("nan")
    return _INFINITIES.get(text, text)


def value_of_argument(value: Any) -> Any:
    """Return an argument of an operator as `compute` sees it; an object that YAML cannot hold is itself."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return value_of_text(value)
    if isinstance(value, float):
        return value_of_text(format(value, ".17g")) if value - value == 0 else float(value)
    if isinstance(value, (list, tuple, set, frozenset, range, bytes)):
        return [value_of_argument(each) for each in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        plain = value.tolist()
        return None if type(plain) is type(value) else value_of_argument(plain)
    return value


def load(text: str, what: str) -> dict[str, Any]:
    """Return the sections of a configuration file; raise RuntimeError, which begins with `what`, if it has none."""
    lines = text.splitlines()
    if not any(line.startswith("---") for line in lines):
        text = "\n".join("" if line.startswith("%") else line for line in lines)
    found: dict[str, Any] = {}
    try:
        for document in yaml.compose_all(text, yaml.SafeLoader):
            sections = _value(document, ())
            if isinstance(sections, dict):
                found = sections | found  # of two documents the first one counts
    except (yaml.YAMLError, RecursionError) as error:
        raise RuntimeError(f"{what} is not valid YAML: {error}") from None
    return found


def _value(node: Any, around: tuple[int, ...]) -> Any:
    if id(node) in around:
        raise yaml.YAMLError("a value contains itself")
    inside = (*around, id(node))
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _value(value, inside) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_value(each, inside) for each in node.value]
    if node.style is None and node.value in _NULLS:
        return None
    return value_of_text(node.value)


def dump(entries: Iterable[tuple[str, Any]], indent: int = 0) -> str:
    """Return lines of YAML as the SDK describes its objects: nested tuples of names and values."""
    lines: list[str] = []
    before = "  " * indent
    for name, value in entries:
        if isinstance(value, list):
            lines.append(f"{before}{name}:")
            if not value:
                lines.append(f"{before}  []")
            for each in value:
                first, *rest = dump(each, indent + 2).splitlines()
                lines += [f"{before}  - {first.lstrip()}", *rest]
        elif isinstance(value, tuple):
            lines += [f"{before}{name}:", dump(value, indent + 1)]
        else:
            lines.append(f"{before}{name}: {value}")
    return "\n".join(lines)
