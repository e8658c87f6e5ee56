"""Models that PyTorch runs: programs of torch.export, and TorchScript.

Tensors are exchanged without a copy, through NumPy's memory on the host and through DLPack on a GPU. On a GPU a
model runs with the operator's stream as PyTorch's current one.

**Fresh results.** A module may return its own parameters, a buffer that its next run changes, or its input. Such a
result is copied, so that what was sent never changes afterwards.

TorchFormat: how tensors are put into the arguments of a TorchScript model, and taken out of its result.

The file lies beside the model, with the same name and the ending ``.yaml``. It names the tensors, with their
shapes and types. Where the model takes or returns lists and dicts, it also tells the place of each tensor in them::

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
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.gpu import StreamHandle
from headrace.inference.model import Extent, InferenceError, Model, ModelOptions, TensorSpec
from headrace.inference.onnx_model import tell_once
from headrace.lazy import import_or_explain
from headrace.tensor import Tensor, tree


@dataclass(repr=False, eq=False)
class TorchModel(Model):
    """A model that PyTorch runs.

    Attributes
    ----------
    kind
        What the file holds, in words.
    module
        What to call.
    arguments
        Makes the positional arguments and the keywords of a call, of one tensor for each input.
    results
        Returns the tensors in what the call returned, one for each output.
    """

    path: Path
    name: str
    kind: str
    device_id: int | None
    module: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arguments: Callable[[Sequence[Any]], tuple[Sequence[Any], dict[str, Any]]]
    results: Callable[[Any], list[Any]]
    returns_own_memory = True

    def __post_init__(self) -> None:
        where = "cpu" if self.device_id is None else f"cuda:{self.device_id}"
        self.runtime = f"PyTorch ({self.kind}, {where})"
        self._torch = import_torch()
        self._state = {_address(tensor) for tensor in (*self.module.parameters(), *self.module.buffers())}

    def run_on_host(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """Run on NumPy arrays and return PyTorch's tensors; see :meth:`Model.run_on_host`."""
        torch = self._torch
        # PyTorch has no read-only tensors, and a module may write to its input.
        tensors = [torch.from_numpy(array if array.flags.writeable else array.copy()) for array in inputs]
        with torch.inference_mode():
            results = self._call(tensors)
        if outputs is None:
            return results
        for target, result in zip(outputs, results, strict=True):
            torch.from_numpy(target).copy_(result)
        return list(outputs)

    def run_on_device(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor | None], stream: StreamHandle
    ) -> list[Any]:
        """Submit a run on the GPU; see :meth:`Model.run_on_device`."""
        torch = self._torch
        with torch.cuda.stream(stream.torch()), torch.inference_mode():
            return self._call([torch.from_dlpack(tensor) for tensor in inputs])

    def _call(self, tensors: list[Any]) -> list[Any]:
        positional, named = self.arguments(tensors)
        results = self.results(self.module(*positional, **named))
        kept = self._state | {_address(tensor) for tensor in tensors}
        return [self._fresh(spec, result, kept) for spec, result in zip(self.outputs, results, strict=True)]

    def _fresh(self, spec: TensorSpec, result: Any, kept: set[int]) -> Any:
        """Return a result in memory that nothing else writes to, C-contiguous."""
        if not isinstance(result, self._torch.Tensor):
            raise InferenceError(
                f"its output {spec.name!r} is a {type(result).__name__}, and should be a tensor"
            )
        result = result.detach()
        return (
            result.clone(memory_format=self._torch.contiguous_format)
            if _address(result) in kept
            else result.contiguous()
        )

    def close(self) -> None:
        """Release the module."""
        self.module = self.arguments = self.results = None  # type: ignore[assignment]


def load_torch(path: Path, name: str, options: ModelOptions) -> TorchModel:
    """Load a program of torch.export or a TorchScript file, whichever the file holds."""
    torch = import_torch()
    device_id: int | None = options.device_id if options.on_gpu else None
    if device_id is not None and not torch.cuda.is_available():
        device_id = None
        tell_once("backend 'torch' runs on the CPU: this PyTorch was built without CUDA, or finds no GPU")
    load = _loader(path, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated, and still the format of many models
            return load(torch, path, name, device_id)
    except InferenceError:
        raise
    except Exception as error:  # PyTorch raises various types for a file that it cannot read
        raise InferenceError(f"model {name!r}: PyTorch cannot load {path}: {error}") from error


def import_torch() -> Any:
    """Import PyTorch; the error names what to install."""
    return import_or_explain("torch", "torch", "to run PyTorch models")


def _loader(path: Path, name: str) -> Callable[..., TorchModel]:
    """Return what loads a file, by what is in it: both kinds are often named ``.pt``."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise InferenceError(
            f"model {name!r}: {path} is not a file of PyTorch ({error}): save the model with torch.export.save, "
            "or as TorchScript"
        ) from error
    inside = {entry.partition("/")[2] or entry for entry in entries}
    if "models/model.json" in inside or any("serialized_exported_program" in entry for entry in entries):
        return _load_export
    if "constants.pkl" in inside and any(entry.startswith("code/") for entry in inside):
        return _load_script
    raise InferenceError(
        f"model {name!r}: {path} holds weights or a pickled module, not a program that can be run by itself: "
        "save it with torch.export.save(torch.export.export(model, example), path)"
    )


def _load_export(torch: Any, path: Path, name: str, device_id: int | None) -> TorchModel:
    from torch.utils import _pytree as pytree

    program = torch.export.load(str(path))
    if device_id is not None:
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, f"cuda:{device_id}")
    signature = program.graph_signature
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for kind, names in (("input", signature.user_inputs), ("output", signature.user_outputs)):
        for entry in names:
            if not isinstance(values.get(entry), torch.Tensor):
                raise InferenceError(
                    f"model {name!r}: its {kind} {entry!r} is not a tensor; a message holds tensors"
                )
    in_spec = program.call_spec.in_spec

    def arguments(tensors: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        positional, named = pytree.tree_unflatten(list(tensors), in_spec)
        return positional, named

    return TorchModel(
        path,
        name,
        "torch.export",
        device_id,
        program.module(),
        tuple(_spec_of(torch, entry, values[entry]) for entry in signature.user_inputs),
        tuple(_spec_of(torch, entry, values[entry]) for entry in signature.user_outputs),
        arguments,
        lambda returned: list(pytree.tree_flatten(returned)[0]),
    )


def _load_script(torch: Any, path: Path, name: str, device_id: int | None) -> TorchModel:
    module = torch.jit.load(
        str(path), map_location="cpu" if device_id is None else f"cuda:{device_id}"
    ).eval()
    beside = path.with_suffix(".yaml")
    form = read_format(beside) if beside.is_file() else _format_of_schema(name, beside, module.forward.schema)
    return TorchModel(
        path,
        name,
        "TorchScript",
        device_id,
        module,
        form.inputs,
        form.outputs,
        lambda tensors: (form.arguments(tensors), {}),
        form.results,
    )


def _format_of_schema(name: str, beside: Path, schema: Any) -> TorchFormat:
    """Return the tensors of a model without a file beside it, where its signature tells them."""
    arguments = schema.arguments[1:]  # without `self`
    others = [f"{entry.name}: {entry.type}" for entry in arguments if str(entry.type) != "Tensor"]
    returned = [entry.type for entry in schema.returns]
    if len(returned) == 1 and returned[0].kind() == "TupleType":
        returned = returned[0].elements()
    others += [f"a result: {kind}" for kind in returned if str(kind) != "Tensor"]
    if others:
        raise InferenceError(
            f"model {name!r} takes or returns more than plain tensors ({', '.join(others)}), and {beside} does not "
            "exist: describe there which tensors they consist of (inference: input_nodes, output_nodes, "
            "input_format, output_format)"
        )
    return TorchFormat(
        beside,
        tuple(TensorSpec(entry.name) for entry in arguments),
        tuple(TensorSpec(f"output_{number}") for number in range(len(returned))),
    )


def _spec_of(torch: Any, name: str, value: Any) -> TensorSpec:
    import numpy as np

    try:
        dtype = np.dtype(str(value.dtype).removeprefix("torch."))
    except TypeError:  # bfloat16 and its like, which NumPy does not have
        dtype = None
    return TensorSpec(name, dtype, tuple(_extent(extent) for extent in value.shape))


def _extent(extent: Any) -> Extent:
    return extent if isinstance(extent, int) else str(extent)


def _address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


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
class TorchFormat:
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
        filled = tree.map(lambda leaf: None if leaf is None else named[leaf], self.input_format)
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


def read_format(path: Path) -> TorchFormat:
    """Read the file beside a model."""
    import yaml

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
    return TorchFormat(path, inputs, outputs, section.get("input_format"), section.get("output_format"))


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
    import numpy as np

    if text is None:
        return None
    plain = str(text).removeprefix("torch.").removeprefix("k").lower()
    name = _DTYPES.get(plain, plain)
    if name not in (*_DTYPES.values(), "bool"):
        raise InferenceError(f"{where}: there is no dtype {text!r}; kFloat32 and float32 are examples")
    return np.dtype(name)


def _shape(where: str, given: Any) -> tuple[Extent, ...] | None:
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
    used = [leaf for leaf in tree.leaves(form) if leaf is not None]
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
