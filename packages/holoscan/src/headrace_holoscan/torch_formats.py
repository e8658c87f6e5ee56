"""The file beside a TorchScript model: how tensors are put into its arguments, and taken out of its result.

It has the name of the model and the ending ``.yaml``. It names the tensors, with their shapes and types. Where the
model takes or returns lists and dicts, it also tells the place of each tensor in them::

    inference:
      input_nodes:
        image: {dim: "3,224,224", dtype: kFloat32}
      output_nodes:
        boxes: {dim: "-1,4", dtype: kFloat32}
        scores: {dtype: kFloat32}
      input_format: [["image"]]                             # model([image])
      output_format: [null, {found: boxes, score: scores}]  # null: ignored
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from headrace.inference import InferenceError, TensorSpec, TorchFormat


def format_beside(path: Path) -> TorchFormat | None:
    """Return what the file beside a model says; None if there is none."""
    beside = path.with_suffix(".yaml")
    if not beside.is_file():
        return None
    found = read_format(beside)
    return TorchFormat(found.inputs, found.outputs, found.arguments, found.results)


# PyTorch's names of types that NumPy calls otherwise.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "char": "int8",
    "byte": "uint8",
    "short": "int16",
}


@dataclass(frozen=True, slots=True)
class _Described:
    """The tensors of a model and their places.

    Attributes
    ----------
    path
        The file.
    inputs, outputs
        The tensors by name, in the order of the file.
    input_format
        The arguments: lists and dicts with names of inputs in them; None passes each input by itself.
    output_format
        The result likewise; None where it is a tensor, or a list or tuple of tensors.
    """

    path: Path
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_format: Any = None
    output_format: Any = None

    def arguments(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the arguments of the model for tensors in the order of `inputs`."""
        if self.input_format is None:
            return list(tensors)
        named = {spec.name: tensor for spec, tensor in zip(self.inputs, tensors, strict=True)}
        filled = _filled(self.input_format, named)
        return filled if isinstance(self.input_format, list) else [filled]

    def results(self, returned: Any) -> list[Any]:
        """Return the tensors in what a model returned, in the order of `outputs`."""
        if self.output_format is None:
            flat = list(returned) if isinstance(returned, (tuple, list)) else [returned]
            if len(flat) != len(self.outputs):
                raise InferenceError(
                    f"it returned {len(flat)} values, and {self.path} names {len(self.outputs)} outputs"
                )
            return flat
        found: dict[str, Any] = {}
        self._collect(self.output_format, returned, found, "its result")
        return [found[spec.name] for spec in self.outputs]

    def _collect(self, wanted: Any, value: Any, found: dict[str, Any], where: str) -> None:
        if wanted is None:
            return
        if isinstance(wanted, str):
            found[wanted] = value
        elif isinstance(wanted, list):
            if not isinstance(value, (tuple, list)) or len(value) != len(wanted):
                raise InferenceError(
                    f"{where} is {_described(value)}; output_format in {self.path} has a list of {len(wanted)}"
                )
            for number, (part, item) in enumerate(zip(wanted, value, strict=True)):
                self._collect(part, item, found, f"{where}[{number}]")
        else:
            for key, part in wanted.items():
                if not isinstance(value, dict) or key not in value:
                    raise InferenceError(
                        f"{where} is {_described(value)}; output_format in {self.path} has the key {key!r} there"
                    )
                self._collect(part, value[key], found, f"{where}[{key!r}]")


def read_format(path: Path) -> _Described:
    """Read the file beside a model."""
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InferenceError(f"{path} is not YAML: {error}") from error
    section = content.get("inference") if isinstance(content, dict) else None
    if not isinstance(section, dict):
        raise InferenceError(f"{path} has no section 'inference' with input_nodes and output_nodes")
    inputs, outputs = (_nodes(path, section, key) for key in ("input_nodes", "output_nodes"))
    for key, specs in (("input_format", inputs), ("output_format", outputs)):
        if section.get(key) is not None:
            _check_names(path, key, section[key], [spec.name for spec in specs])
    return _Described(path, inputs, outputs, section.get("input_format"), section.get("output_format"))


def _nodes(path: Path, section: dict[str, Any], key: str) -> tuple[TensorSpec, ...]:
    nodes = section.get(key)
    if not isinstance(nodes, dict) or not nodes:
        raise InferenceError(f"{path}: inference has no {key}: a mapping of names to dim and dtype")
    specs = []
    for name, entry in nodes.items():
        where, entry = f"{path}: {key}: {name}", entry or {}
        if not isinstance(entry, dict) or set(entry) - {"dim", "dtype"}:
            raise InferenceError(f"{where} must have dim and dtype, not {entry!r}")
        specs.append(
            TensorSpec(str(name), _dtype(where, entry.get("dtype")), _shape(where, entry.get("dim")))
        )
    return tuple(specs)


def _dtype(where: str, text: Any) -> Any:
    if text is None:
        return None
    plain = str(text).removeprefix("torch.").removeprefix("k").lower()
    name = _DTYPES.get(plain, plain)
    if name not in (*_DTYPES.values(), "bool"):
        raise InferenceError(f"{where}: there is no dtype {text!r}; kFloat32 and float32 are examples")
    return np.dtype(name)


def _shape(where: str, given: Any) -> tuple[int | None, ...] | None:
    if given is None:
        return None
    parts = given if isinstance(given, list) else re.split(r"[\s,]+", str(given).strip())
    try:
        extents = [int(part) for part in parts]
    except (TypeError, ValueError):
        raise InferenceError(
            f'{where}: dim must be extents such as "3,224,224", -1 for a dynamic one, not {given!r}'
        ) from None
    return tuple(extent if extent >= 0 else None for extent in extents)


def _check_names(path: Path, key: str, form: Any, names: list[str]) -> None:
    """Raise unless each name is in a format exactly once."""
    used = [leaf for leaf in _leaves(form) if leaf is not None]
    for leaf in used:
        if not isinstance(leaf, str):
            raise InferenceError(f"{path}: {key} has lists, dicts and names of tensors, not {leaf!r}")
    wrong = [name for name in used if name not in names] or [name for name in names if used.count(name) != 1]
    if wrong:
        raise InferenceError(
            f"{path}: {key} must name each of {', '.join(map(repr, names))} once; {wrong[0]!r} is "
            + ("not one of them" if wrong[0] not in names else f"in it {used.count(wrong[0])} times")
        )


def _described(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, value))}"
    return f"a {type(value).__name__}"


def _filled(form: Any, named: dict[str, Any]) -> Any:
    """Return a format with tensors in place of their names."""
    if isinstance(form, list):
        return [_filled(part, named) for part in form]
    if isinstance(form, dict):
        return {key: _filled(part, named) for key, part in form.items()}
    return None if form is None else named[form]


def _leaves(form: Any) -> Iterator[Any]:
    """Yield the names in a format."""
    if isinstance(form, (list, dict)):
        for part in form.values() if isinstance(form, dict) else form:
            yield from _leaves(part)
    else:
        yield form
