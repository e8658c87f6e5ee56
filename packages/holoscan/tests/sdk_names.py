"""Write sdk_names.json: the public names of the Holoscan SDK's modules, and the arguments of their constructors.

Run it with an interpreter that has the SDK: ``python packages/holoscan/tests/sdk_names.py``. An operator whose
libraries are missing on the machine keeps its entry.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = Path(__file__).with_suffix(".json")
MODULES = (
    *("core", "conditions", "resources", "schedulers", "operators", "decorator", "logger", "executors"),
    *("flow_graphs", "data_loggers", "gxf", "network_contexts", "pose_tree"),
)
# A class of pybind11 has its signature in the docstring of its constructor.
_SIGNATURE = re.compile(r"^(?:\d+\. )?__init__\((self: .*)\) -> None$", re.MULTILINE)
_ENUM = re.compile(r"<(\w+\.\w+): -?\d+>")
_TYPE = re.compile(r"\b(?:holoscan(?:::|\.)[\w.:]+|pybind11\w*[\w.]*)")


def signature_of(cls: type) -> inspect.Signature | None:
    """Return the signature of a constructor without `self`; None where it takes no fragment."""
    init: Any = cls.__init__  # type: ignore[misc]
    if inspect.isfunction(init):
        return inspect.signature(init)
    texts = [text for text in _SIGNATURE.findall(init.__doc__ or "") if "fragment" in text]
    if not texts:
        return None
    # Of a class that Python code derives from, the first argument is the Python object.
    text = re.sub(r"^self: [^,]*(, (?:op|component): object)?", "self", _ENUM.sub(r"'\1'", texts[0]))
    found: dict[str, Any] = {}
    exec(f"from __future__ import annotations\ndef f({_TYPE.sub('object', text)}): pass", found)
    return inspect.signature(found["f"])


def shown(signature: inspect.Signature) -> str:
    """Return the arguments of a constructor as text: names, order and defaults."""
    parts: list[str] = []
    for parameter in list(signature.parameters.values())[1:]:
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f"={_shown(parameter.default)}"
        parts.append(f"{stars}{parameter.name}{default}")
    return ", ".join(parts)


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        default = list(default)
    if hasattr(default, "name") and hasattr(default, "value"):
        return f"{type(default).__name__.lstrip('_')}.{default.name}"
    return (
        default if isinstance(default, str) and re.fullmatch(r"[A-Z]\w+\.[A-Z_]+", default) else repr(default)
    )


def describe(module: ModuleType, known: dict[str, Any]) -> dict[str, Any]:
    """Return the names of a module, its submodules, and its constructors."""
    names, submodules, constructors = [], [], {}
    for name in _public(module):
        try:
            value = getattr(module, name)
        except ImportError:
            (names if name[0].isupper() else submodules).append(name)
            if name in known.get("constructors", {}):
                constructors[name] = known["constructors"][name]
            continue
        if inspect.ismodule(value):
            submodules.append(name)
            continue
        names.append(name)
        signature = signature_of(value) if inspect.isclass(value) else None
        if signature is not None:
            constructors[name] = shown(signature)
    return {"names": names, "submodules": submodules, "constructors": constructors}


def _public(module: ModuleType) -> Iterable[str]:
    more = {"SimpleTextSerializer"} if module.__name__.endswith("data_loggers") else set()
    return sorted({*module.__all__} | more)


def main() -> None:
    """Write the file."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    found = {
        name: describe(importlib.import_module(f"holoscan.{name}"), known.get(name, {})) for name in MODULES
    }
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
