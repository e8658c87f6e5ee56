"""Models that PyTorch runs: programs of torch.export, and TorchScript.

Tensors are exchanged without a copy, through NumPy's memory on the host and through DLPack on a GPU. On a GPU a
model runs with the operator's stream as PyTorch's current one.

**Fresh results.** A module may return its own parameters, a buffer that its next run changes, or its input. Such a
result is copied, so that what was sent never changes afterwards.

**What a TorchScript file takes** is in its signature, where that has plain tensors alone. For others
`ModelOptions.torch_format` tells it; a program of torch.export keeps lists and dicts by itself.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.gpu import StreamHandle
from headrace.inference.model import Extent, InferenceError, Model, ModelOptions, TensorSpec, TorchFormat
from headrace.inference.onnx_model import tell_once
from headrace.lazy import import_or_explain
from headrace.tensor import Tensor


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
            return load(torch, path, name, device_id, options)
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


def _load_export(
    torch: Any, path: Path, name: str, device_id: int | None, options: ModelOptions
) -> TorchModel:
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


def _load_script(
    torch: Any, path: Path, name: str, device_id: int | None, options: ModelOptions
) -> TorchModel:
    where = "cpu" if device_id is None else f"cuda:{device_id}"
    module = torch.jit.load(str(path), map_location=where).eval()
    form = None if options.torch_format is None else options.torch_format(path)
    form = form or _format_of_schema(name, module.forward.schema)
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


def _format_of_schema(name: str, schema: Any) -> TorchFormat:
    """Return the tensors of a model whose signature tells them."""
    arguments = schema.arguments[1:]  # without `self`
    others = [f"{entry.name}: {entry.type}" for entry in arguments if str(entry.type) != "Tensor"]
    returned = [entry.type for entry in schema.returns]
    if len(returned) == 1 and returned[0].kind() == "TupleType":
        returned = returned[0].elements()
    others += [f"a result: {kind}" for kind in returned if str(kind) != "Tensor"]
    if others:
        raise InferenceError(
            f"model {name!r} takes or returns more than plain tensors ({', '.join(others)}): save it with "
            "torch.export.save, which keeps lists and dicts, or tell where they are: ModelOptions(torch_format=...)"
        )
    return TorchFormat(
        tuple(TensorSpec(entry.name) for entry in arguments),
        tuple(TensorSpec(f"output_{number}") for number in range(len(returned))),
        list,
        lambda result: list(result) if isinstance(result, (tuple, list)) else [result],
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
