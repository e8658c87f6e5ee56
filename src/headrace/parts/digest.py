"""Digest: a description of a composed program that is equal in every process that composed the same program.

Each process of a program composes it anew. If one of them composed something else (it read a file that changed,
the time, a random number), a link would join what does not fit, or a part would silently compute something else. So
the driver compares descriptions before anything starts. A description is a dict of texts and not a hash: it is
small, and it says what differs.

Values are compared where text says what they are. Arrays are compared by their bytes. Of other objects only the
type counts, because their text may have an address in it.
"""

from __future__ import annotations

import enum
import inspect
import os
import sys
import zlib
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from headrace.core.function import FunctionOperator
from headrace.core.graph import Flow
from headrace.core.parameters import holder_of
from headrace.core.ports import IOSpec
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.core.operator import Operator

_PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, PurePath, range)
_LARGEST = 1 << 20  # bytes of an array that are compared
LIVE = "live parameter"
"""How the descriptions of live parameters begin, whose values may change in a run."""


def describe(application: Any) -> dict[str, str]:
    """Return the description of a composed application of fragments."""
    found = {"Python": sys.version.partition(" ")[0], "headrace": __version__}
    found["the application"] = f"{application.name!r}, {_type(application)}"
    found["the list of fragments"] = ", ".join(
        fragment.name for fragment in application.fragment_graph.fragments
    )
    for operator in application.graph:
        found.update(_operator(operator))
    for flow in application.graph.flows:
        found[f"flow {flow}"] = _flow(flow)
    for operator in application.graph:
        module, file = _file(_code(operator))
        if file:  # by the name of its module: hosts may keep a program in different folders
            found[f"file {os.path.basename(file)!r} of module {module!r}"] = _checksum(file)
    return found


def difference(expected: dict[str, str], found: dict[str, str], part: str) -> str:
    """Return in words what is first different in two descriptions; empty if they are equal."""
    for what in dict.fromkeys((*expected, *found)):
        ours, theirs = expected.get(what), found.get(what)
        if ours == theirs:
            continue
        if theirs is None:
            return f"{what} is missing in the process of fragment {part!r}"
        if ours is None:
            return f"{what} exists only in the process of fragment {part!r}"
        return f"{what} is {ours} in the driver and {theirs} in the process of fragment {part!r}"
    return ""


def _operator(operator: Operator) -> dict[str, str]:
    name = f"operator {operator.name!r}"
    found = {name: _value(_code(operator))}
    for parameter in operator.spec.params:
        kind = LIVE if parameter in operator._headrace.live_parameters else "parameter"
        found[f"{kind} {parameter!r} of {name}"] = _value(getattr(holder_of(operator), parameter, None))
    for kind, ports in (("input", operator.spec.inputs), ("output", operator.spec.outputs)):
        for port in ports.values():
            found[f"{kind} {port.name!r} of {name}"] = _port(port)
    for kind, components in (("condition", operator.conditions), ("resource", operator.resources)):
        for each in components.values():
            found[f"{kind} {each.name!r} of {name}"] = f"{_type(each)} {_value(_arguments(each))}"
    return found


def _arguments(component: Any) -> dict[str, Any]:
    """Return the arguments that a condition or a resource was given, as far as it keeps them under their names."""
    kept = {}
    for key in inspect.signature(type(component)).parameters:
        parameter = component.spec.params.get(key)
        name = key if parameter is None else parameter.attribute
        with suppress(Exception):  # a property may need the run
            kept[key] = getattr(component, name, getattr(component, f"_{name}", None))
    return {key: value for key, value in kept.items() if isinstance(value, _PLAIN)}


def _port(port: IOSpec) -> str:
    conditions = [(condition.kind.name, _value(condition.arguments)) for condition in port.conditions]
    return f"size={port.size} policy={port.policy} conditions={conditions}"


def _flow(flow: Flow) -> str:
    return f"size={flow.size} policy={flow.policy}"


def _type(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _value(value: Any) -> str:
    """Return a text that is the same in every process."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(key)}: {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{', '.join(map(_value, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}[{', '.join(sorted(map(_value, value)))}]"
    if hasattr(value, "__array_interface__") and not hasattr(value, "__cuda_array_interface__"):
        return _array(value)
    name = getattr(value, "__qualname__", None)  # a function or a class
    return f"{getattr(value, '__module__', '')}.{name}" if isinstance(name, str) else f"a {_type(value)}"


def _array(value: Any) -> str:
    import numpy as np

    array = np.asarray(value)
    text = f"array of {array.dtype} {array.shape}"
    if array.dtype.hasobject or array.nbytes > _LARGEST:
        return text
    return f"{text} with checksum {zlib.crc32(array.tobytes()):08x}"


def _code(operator: Operator) -> Any:
    """Return the class of an operator, or its function."""
    return operator.declared.function if isinstance(operator, FunctionOperator) else type(operator)


def _file(code: Any) -> tuple[str, str]:
    """Return the module and the source file of a class or a function; empty for headrace's own."""
    module = str(getattr(code, "__module__", ""))
    if module == "headrace" or module.startswith("headrace."):
        return module, ""
    return module, getattr(sys.modules.get(module), "__file__", None) or ""


def _checksum(file: str) -> str:
    try:
        with open(file, "rb") as content:
            return f"of checksum {zlib.crc32(content.read()):08x}"
    except OSError:
        return "unreadable"
