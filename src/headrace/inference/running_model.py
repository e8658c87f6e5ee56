"""RunningModel: a model of an operator in a run, with its settings, what fits it, and its last outputs.

Tensors are put into the form that the model takes, and brought to the device where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from headrace.gpu import StreamHandle
from headrace.inference.model import InferenceError, Model, ModelOptions, TensorSpec, load_model, shape_text
from headrace.inference.settings import ModelSetting, Profile, read_profile
from headrace.installation import installing
from headrace.tensor import DLDataType, DLDeviceType, Tensor, as_tensor
from headrace.tensor.capsule import exporter_of
from headrace.tensor.copies import copy, simulate, simulated_memory
from headrace.tensor.description import row_major

_DEVICE_TYPES = (DLDeviceType.CUDA, DLDeviceType.CUDA_MANAGED)
_COPY_SECONDS = 20e-6  # of a simulated kernel that copies


def in_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a C-contiguous tensor in another shape with the same elements."""
    if tensor.shape == shape:
        return tensor
    strides = row_major(shape, tensor.itemsize)
    description = (tensor.data, shape, strides, tensor.dl_dtype, tensor.device, tensor.is_readonly)
    return Tensor._create(description, tensor, exporter_of(description, tensor), tensor._pending_work)


def to_device(tensor: Tensor, stream: StreamHandle, allocator: Any, operator: str) -> Tensor:
    """Return a C-contiguous tensor in device memory: the given one, or a copy made in the order of a stream."""
    is_here = tensor.device.device_type in _DEVICE_TYPES
    if is_here and tensor.is_contiguous():
        return tensor
    if is_here and stream.backend.runs_cuda:
        return _contiguous_on_gpu(tensor, stream)
    target: Tensor = allocator.allocate_tensor(tensor.shape, tensor.dtype, stream=stream, operator=operator)
    if is_here:
        views = simulated_memory(target), simulated_memory(tensor)
        simulate("contiguous", _COPY_SECONDS, stream, lambda: np.copyto(*views))
        return target
    if not tensor.is_contiguous():
        if tensor.device.is_cuda:
            stream.stream.sync()  # NumPy reads pinned memory at once
        tensor = as_tensor(np.ascontiguousarray(tensor))
    copy(target, tensor, stream)
    return target


def _contiguous_on_gpu(tensor: Tensor, stream: StreamHandle) -> Tensor:
    """Return a C-contiguous copy of a strided tensor on a GPU, which takes a kernel."""
    try:
        from headrace.tensor.libraries.cupy import contiguous_copy
    except ImportError as error:
        raise InferenceError(
            f"{tensor!r} is strided, and only CuPy could copy it on the GPU ({error}): {installing('cupy')}, "
            "or send a C-contiguous tensor"
        ) from error
    return as_tensor(contiguous_copy(tensor, stream), stream=stream)


_SIMULATED_SECONDS = 1e-3  # of a run on a simulated device

Shape = tuple[int, ...]


@dataclass(eq=False)
class RunningModel:
    """A model of an operator in a run.

    Parameters
    ----------
    setting
        What the operator's maps say about it.
    operator
        The operator's name, for errors.
    may_change_shapes
        Whether the shapes of the inputs may change from frame to frame.
    computes_on_host
        Whether the host computes the model, in a kernel of a device that runs no CUDA.

    Attributes
    ----------
    is_active
        Whether it runs on the frames that it is due on.
    results
        Its last outputs: arrays of any library, or none before it has run.
    stream
        A stream of its own; None where it shares the operator's.
    """

    setting: ModelSetting
    operator: str
    may_change_shapes: bool
    computes_on_host: bool
    results: list[Any] = field(default_factory=list, init=False)
    stream: StreamHandle | None = field(default=None, init=False)
    _model: Model | None = field(default=None, init=False)
    _profile: Profile = field(default=(), init=False)
    # The shape of each input, as the model takes it: in this frame, and in the first.
    _shapes: list[Shape] = field(default_factory=list, init=False)
    _first_shapes: list[Shape] = field(default_factory=list, init=False)
    # The shape and type of each input of the last frame that fitted.
    _described: list[tuple[Shape, DLDataType]] = field(default_factory=list, init=False)
    # The shapes and types of the outputs on a simulated device, by the shapes of the inputs.
    _known_outputs: dict[tuple[Shape, ...], list[tuple[Shape | None, Any]]] = field(
        default_factory=dict, init=False
    )

    def __post_init__(self) -> None:
        self.is_active = bool(self.setting.is_active)

    @property
    def model(self) -> Model:
        """The loaded model."""
        assert self._model is not None
        return self._model

    def is_due(self, frame: int) -> bool:
        """Return whether it runs on a frame, counted from 0."""
        return self.is_active and frame % self.setting.every == 0

    def load(self, options: ModelOptions) -> None:
        """Load the model, and compare its inputs and outputs with the operator's maps."""
        setting = self.setting
        owner = f"operator {self.operator!r}"
        self.stream = options.stream
        try:
            if setting.profile is not None and options.on_gpu and setting.backend == "trt":
                # TensorRT is told the shapes of the inputs when it loads the model.
                inputs = load_model(setting.path, name=setting.name).inputs
                options = replace(options, profile=read_profile(owner, setting, inputs))
            self._model = model = load_model(
                setting.path, backend=setting.backend, name=setting.name, options=options
            )
        except InferenceError as error:
            raise InferenceError(f"{owner}: {error}") from error
        self._check_count("pre_processor_map", "inputs", setting.inputs, model.inputs)
        self._check_count("inference_map", "outputs", setting.outputs, model.outputs)
        self._profile = read_profile(owner, setting, model.inputs)

    def _check_count(self, key: str, what: str, names: list[str], specs: tuple[TensorSpec, ...]) -> None:
        if len(names) != len(specs):
            has = ", ".join(f"{spec.name!r} ({spec})" for spec in specs)
            raise InferenceError(
                f"operator {self.operator!r}: {key} names {len(names)} tensors for model {self.setting.name!r}, "
                f"which has {len(specs)} {what}: {has}"
            )

    def close(self) -> None:
        """Release the model, and what it returned last."""
        model, self._model = self._model, None
        self.results = []
        if model is not None:
            model.close()

    # What goes in.

    def fit(self, tensors: Mapping[str, Tensor]) -> None:
        """Compare the tensors of a frame with the model's inputs; raise if one does not fit."""
        described = [(tensors[name].shape, tensors[name].dl_dtype) for name in self.setting.inputs]
        if described == self._described:
            return  # as in the frame before
        shapes: list[Shape] = []
        for place, (name, spec) in enumerate(zip(self.setting.inputs, self.model.inputs, strict=True)):
            tensor = tensors[name]
            shape = spec.arrange(tensor.shape)
            if shape is None or (spec.dtype is not None and tensor.dl_dtype.name != spec.dtype.name):
                found = f"{tensor.dl_dtype.name} {shape_text(tensor.shape)}"
                raise InferenceError(
                    f"{self._where(name)} must be {spec}, for the input {spec.name!r}, and is {found}"
                )
            if self._profile:
                self._check_profile(name, spec, shape, self._profile[place])
            shapes.append(shape)
        if not self._first_shapes:
            self._first_shapes = shapes
        elif shapes != self._first_shapes and not self.may_change_shapes:
            pairs = zip(self.setting.inputs, self._first_shapes, shapes, strict=True)
            name, before, now = next(pair for pair in pairs if pair[1] != pair[2])
            raise InferenceError(
                f"{self._where(name)} was {shape_text(before)} in the first frame and is {shape_text(now)} now: "
                "set dynamic_input_dims=True if shapes may change"
            )
        self._shapes = shapes
        self._described = described

    def _where(self, tensor: str) -> str:
        return f"operator {self.operator!r}: model {self.setting.name!r}: the tensor {tensor!r}"

    def _check_profile(
        self, name: str, spec: TensorSpec, shape: Shape, triples: tuple[tuple[int, int, int], ...]
    ) -> None:
        extents = zip(spec.shape or (), shape, strict=False)
        dynamic = [found for extent, found in extents if not isinstance(extent, int)]
        for found, (least, _, greatest) in zip(dynamic, triples, strict=True):
            if not least <= found <= greatest:
                raise InferenceError(
                    f"{self._where(name)} is {shape_text(shape)}, and trt_opt_profile allows {least} to {greatest} "
                    f"where it has {found}"
                )

    # Running.

    def run_on_host(self, tensors: Mapping[str, Tensor]) -> list[Any]:
        """Run on tensors in host memory, and return the outputs."""
        arrays = [np.ascontiguousarray(tensor).reshape(shape) for tensor, shape in self._inputs(tensors)]
        return self._guarded(lambda: self.model.run_on_host(arrays))

    def run_on_device(
        self, tensors: Mapping[str, Tensor], outputs: list[Tensor | None], stream: StreamHandle
    ) -> list[Any]:
        """Submit a run on C-contiguous tensors in device memory, and return the outputs."""
        inputs = [in_shape(tensor, shape) for tensor, shape in self._inputs(tensors)]
        if self.computes_on_host:
            # A kernel that takes effect on the memory of the device when it ends.
            sources = [simulated_memory(tensor) for tensor in inputs]
            targets = [simulated_memory(tensor) for tensor in outputs if tensor is not None]
            run = partial(self.model.run_on_host, sources, targets)
            simulate(
                f"model {self.setting.name}", _SIMULATED_SECONDS, stream, partial(self._guarded, run), 64, 256
            )
            return list(outputs)
        return self._guarded(lambda: self.model.run_on_device(inputs, outputs, stream))

    def _inputs(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Shape]]:
        """Return the tensors of the inputs, and the shapes that the model takes them in."""
        return zip(map(tensors.__getitem__, self.setting.inputs), self._shapes, strict=True)

    def zeros(self) -> list[Any]:
        """Return outputs of zeros in place of those of a first run; none if a shape or a type is not certain."""
        outputs = self.model.outputs
        if any(spec.is_dynamic or spec.dtype is None for spec in outputs):
            return []
        return [np.zeros(spec.shape, spec.dtype) for spec in outputs]

    def allocate(self, allocator: Any, stream: StreamHandle) -> list[Tensor | None]:
        """Allocate the outputs on the device; None stands for memory of the runtime."""
        return [
            None
            if shape is None
            else allocator.allocate_tensor(shape, dtype, stream=stream, operator=self.operator)
            for shape, dtype in self._outputs()
        ]

    def _outputs(self) -> list[tuple[Shape | None, Any]]:
        """Return the type of each output, and its shape if it is to be allocated."""
        model, key = self.model, tuple(self._shapes)
        shapes = model.output_shapes(self._shapes)
        if not self.computes_on_host:
            if model.returns_own_memory:
                shapes = [None] * len(shapes)
            return [(shape, spec.dtype) for spec, shape in zip(model.outputs, shapes, strict=True)]
        # A simulated kernel needs all outputs before it runs. A run on zeros shows those that are not certain: an
        # ONNX file may use one name for two extents; a program of PyTorch does not.
        if key not in self._known_outputs:
            found: list[tuple[Shape | None, Any]] = [
                (shape, spec.dtype)
                for spec, shape in zip(model.outputs, shapes, strict=True)
                if None not in (shape, spec.dtype) and (model.returns_own_memory or not spec.is_dynamic)
            ]
            if len(found) < len(shapes):
                pairs = zip(self._shapes, self._described, strict=True)
                zeros = [np.zeros(shape, element.numpy()) for shape, (_, element) in pairs]
                results = self._guarded(lambda: model.run_on_host(zeros))
                found = [(tensor.shape, tensor.dtype) for tensor in map(as_tensor, results)]
            self._known_outputs[key] = found
        return self._known_outputs[key]

    def _guarded(self, call: Callable[[], list[Any]]) -> list[Any]:
        """Call the runtime; its errors name the model."""
        try:
            return call()
        except Exception as error:  # runtimes raise various types
            model = self.model
            raise InferenceError(
                f"operator {self.operator!r}: model {self.setting.name!r} ({model.runtime}, {model.path}) failed: "
                f"{' '.join(str(error).split()) or type(error).__name__}"
            ) from error
