"""InferenceOp: runs models on the tensors of its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace import gpu, waits
from headrace._runtime import source_of
from headrace.core.composition import Composition
from headrace.core.construction import needs_fragment
from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
from headrace.core.errors import ParameterError, choices
from headrace.core.operator import Operator, Part
from headrace.core.parameters import REQUIRED, declared, parameter
from headrace.core.ports import ConditionType, IOSpec
from headrace.core.spec import OperatorSpec
from headrace.gpu import StreamHandle
from headrace.gpu.backend import active
from headrace.inference.model import InferenceError, ModelOptions
from headrace.inference.running_model import RunningModel, to_device
from headrace.inference.settings import ModelSetting, read_names, read_settings
from headrace.operators.tensor_operator import check_parameters, gather, set_default_allocator
from headrace.tensor import Tensor, TensorMap, as_tensor
from headrace.tensor.copies import HostMemory, read_on_host

if TYPE_CHECKING:
    from headrace.resources import Allocator

_Models: TypeAlias = list[RunningModel]
_Tensors: TypeAlias = dict[str, Tensor]
_RECEIVERS, _SPECS, _TRANSMITTER = "receivers", "model_activation_specs", "transmitter"


@dataclass(slots=True)
class _ActivationSpec:
    """Whether a model runs from now on.

    Attributes
    ----------
    model_name
        The model, by its name in the maps.
    active
        Whether it runs.
    """

    model_name: str
    active: bool = True


@declared
class InferenceOp(Operator):
    """Runs one or more models on the tensors that it receives, and emits their outputs in one message.

    Ports:

    - in ``receivers``, for any number of connections: the tensors are found by name in all their messages. A single
      unnamed tensor is taken for the only one that the models need.
    - in ``model_activation_specs``, which may stay unconnected: a list of
      ``InferenceOp.ActivationSpec(model_name, active)``, which hold from then on.
    - out ``transmitter``: a TensorMap of all outputs.

    A tensor must have the type of the model's input, and its shape. Axes of extent 1 may be missing or too many, so
    that a frame (H, W, C) fits a model that takes (1, H, W, C).

    **Memory.** Each frame's outputs are in memory of their own. On the host, models read what was received in
    place, and the outputs are the runtime's. On a GPU, an ONNX model writes to memory of `allocator`: one block for
    each output, and one for each input that arrives in host memory. Outputs whose shape is not known before the
    run, and all of PyTorch, are memory of the runtime.

    **Where the outputs are.** With a GPU, where `transmit_on_cuda` says. Without one, where the inputs were: in
    host memory, or in memory of the simulated device. Only what ends in host memory waits for the GPU.

    Parameters
    ----------
    backend
        ``"trt"``, ``"onnxrt"`` or ``"torch"``; not needed if `backend_map` has every model. ``"trt"`` is ONNX
        Runtime with TensorRT, or else with CUDA, or else on the CPU; the log (``headrace.inference``) says so once.
    allocator
        The allocator of device memory; an UnboundedAllocator unless given.
    model_path_map
        The file of each model: ONNX, or with ``torch`` a program of ``torch.export.save`` or TorchScript.
    pre_processor_map
        The tensors that each model reads, in the order of its inputs.
    inference_map
        The names of each model's outputs, in their order.
    backend_map
        The backend of single models.
    device_map
        The GPU of single models, which must be that of the operator's streams.
    temporal_map
        A model with k runs on frames 1, k+1, 2k+1 and so on. In between, its last outputs are sent again.
    activation_map
        A model with 0 does not run; its last outputs are sent, if it has any.
    in_tensor_names, out_tensor_names
        Tensors to look for and to send; by default those of the maps.
    infer_on_cpu
        Run all models on the host.
    parallel_inference
        Run several models at the same time: on threads of the operator, and on a stream for each.
    input_on_cuda, output_on_cuda
        Accepted: tensors are brought to where the model runs, from wherever they are.
    transmit_on_cuda
        Whether the outputs are sent in device memory.
    dynamic_input_dims
        Whether the shapes of the inputs may change from frame to frame.
    trt_opt_profile
        For models with dynamic shapes, a list with a text for each input: ``"min,opt,max"`` for each of its dynamic
        extents. Shapes outside of it are refused, with every backend.
    enable_fp16
        Let TensorRT compute in 16 bits; only for ``trt``.
    enable_cuda_graphs
        Accepted; no graph is captured, since the memory of the outputs differs from frame to frame.
    dla_core, dla_core_map, dla_gpu_fallback
        The core of the deep learning accelerator for TensorRT, for all models or single ones; -1 for none.
    is_engine_path
        Must be False: an engine of TensorRT cannot be loaded; give the ONNX file.
    cuda_stream_pool
        The pool of the operator's streams.
    """

    parallel = True  # models compute outside the interpreter

    ActivationSpec: ClassVar[type[_ActivationSpec]] = _ActivationSpec

    backend: Any = None
    allocator: Allocator = parameter(default=None)
    cuda_stream_pool: Any = None
    inference_map: dict[str, Any] = parameter(default=REQUIRED)
    model_path_map: dict[str, Any] = parameter(default=REQUIRED)
    pre_processor_map: dict[str, Any] = parameter(default=REQUIRED)
    device_map: dict[str, Any] = parameter(default_factory=dict)
    dla_core_map: dict[str, Any] = parameter(default_factory=dict)
    temporal_map: dict[str, Any] = parameter(default_factory=dict)
    activation_map: dict[str, Any] = parameter(default_factory=dict)
    sends_zeros_first: ClassVar[bool] = False
    """Whether a model that has not run yet sends zeros where the shapes of its outputs are certain, or nothing."""
    torch_format: ClassVar[Any] = None
    """A static method that tells where the tensors of TorchScript files are (`headrace.inference.ModelOptions`)."""
    backend_map: dict[str, Any] = parameter(default_factory=dict)
    # None stands for an empty one: a default of that type would refuse what older files give.
    in_tensor_names: Any = None
    out_tensor_names: Any = None
    trt_opt_profile: Any = None
    infer_on_cpu: bool = False
    parallel_inference: bool = True
    input_on_cuda: bool = True
    output_on_cuda: bool = True
    transmit_on_cuda: bool = True
    dynamic_input_dims: bool = False
    enable_fp16: bool = False
    enable_cuda_graphs: bool = True
    dla_core: int = parameter(default=-1, minimum=-1)
    dla_gpu_fallback: bool = True
    is_engine_path: bool = False

    @needs_fragment
    def _create(self, fragment: Composition, *args: Part, name: str = "", **kwargs: Any) -> None:
        self._models: list[RunningModel] = []
        self._threads: Executor | None = None
        self._frame = 0
        self.runtimes: dict[str, str] = {}
        """The runtime of each model in this run, or in the last one: ``"ONNX Runtime (CPUExecutionProvider)"``."""
        super().__init__(fragment, *args, name=name, **kwargs)
        self.in_tensor_names = self.in_tensor_names or []
        self.out_tensor_names = self.out_tensor_names or []
        self.trt_opt_profile = self.trt_opt_profile or {}
        set_default_allocator(self)

    if not TYPE_CHECKING:  # a type checker has the parameters as arguments (`declared`)
        __init__ = _create

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the ports."""
        spec.input(_RECEIVERS, size=IOSpec.ANY_SIZE)
        spec.input(_SPECS).condition(ConditionType.NONE)
        spec.output(_TRANSMITTER)

    # The life of the models.

    def initialize(self) -> None:
        """Check the parameters."""
        check_parameters(self)
        self._has_gpu = active().runs_cuda
        owner = f"operator {self.name!r}"
        settings = read_settings(owner, {name: getattr(self, name) for name in self.spec.params})
        self._check_flags(owner, settings)
        self._settings = settings
        self._sent = read_names(owner, "out_tensor_names", self.out_tensor_names) or None
        inputs = {name for setting in settings for name in setting.inputs}
        self._only_input = inputs.pop() if len(inputs) == 1 else None

    def _check_flags(self, owner: str, settings: list[ModelSetting]) -> None:
        """Raise for parameters that cannot be honoured."""
        if self.is_engine_path:
            raise ParameterError(
                f"{owner}: is_engine_path=True is not supported: no runtime here loads an engine of TensorRT. Give "
                "the ONNX file in model_path_map and leave is_engine_path False; with TensorRT an engine is built "
                "from it and kept beside it"
            )
        backends = {setting.backend for setting in settings}
        if self.enable_fp16 and ("trt" not in backends or self.infer_on_cpu):
            raise ParameterError(
                f"{owner}: enable_fp16=True needs backend 'trt' and infer_on_cpu=False: only TensorRT converts a "
                "model. For other backends convert the model itself to float16"
            )
        for setting in settings:
            if setting.dla_core >= 0 and (
                setting.backend != "trt" or self.infer_on_cpu or not self.dla_gpu_fallback
            ):
                raise ParameterError(
                    f"{owner}: model {setting.name!r} is to run on DLA core {setting.dla_core}. That needs backend "
                    "'trt', infer_on_cpu=False, and dla_gpu_fallback=True: ONNX Runtime always allows the fallback"
                )

    def start(self) -> None:
        """Load the models."""
        self._frame = 0
        self._host_memory = HostMemory()
        source = source_of(self)
        self._device_id = 0 if source is None else source.dev_id
        self._models = [
            RunningModel(setting, self.name, self.dynamic_input_dims, not self._has_gpu)
            for setting in self._settings
        ]
        self._is_parallel = self.parallel_inference and len(self._models) > 1
        try:
            for running in self._models:
                running.load(self._options(running.setting))
        except BaseException:
            self.stop()
            raise
        self.runtimes = {running.setting.name: running.model.runtime for running in self._models}
        if self._is_parallel:
            # The thread that computes runs a model, too.
            self._threads = ThreadPoolExecutor(
                len(self._models) - 1, f"{self.name} model", self._make_device_current
            )

    def _options(self, setting: ModelSetting) -> ModelOptions:
        device_id = self._device_id
        if self._has_gpu and setting.device_id not in (None, device_id):
            raise InferenceError(
                f"operator {self.name!r}: device_map puts model {setting.name!r} on GPU {setting.device_id}, and "
                f"the operator's streams are on GPU {device_id}: give this model an InferenceOp of its own, with "
                f"CudaStreamPool(self, dev_id={setting.device_id})"
            )
        on_gpu = self._has_gpu and not self.infer_on_cpu
        stream = None
        if on_gpu and setting.backend != "torch":
            # ONNX Runtime is told the stream of a session when the session is made.
            assert self._headrace.node is not None
            stream = self._headrace.node.context.allocate_cuda_stream(f"model {setting.name}")
            if stream is None:
                raise InferenceError(
                    f"operator {self.name!r}: its stream pool has no stream left for model {setting.name!r}: raise "
                    "max_size by the number of models"
                )
        return ModelOptions(
            on_gpu, device_id, stream, self.enable_fp16, setting.dla_core, torch_format=self.torch_format
        )

    def _make_device_current(self) -> None:
        """Make the operator's device current on a thread of its own."""
        if self._has_gpu:
            gpu.Device(self._device_id).set_current()

    def stop(self) -> None:
        """Release the models and the threads."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        for running in self._models:
            running.close()
        self._host_memory = HostMemory()  # without the memory of the last one

    # One frame.

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Run the models that are due, and emit the outputs of all."""
        specs = op_input.receive(_SPECS)
        if specs is not None:
            self._activate(specs)
        messages = op_input.receive(_RECEIVERS)
        frame, self._frame = self._frame, self._frame + 1
        due = [running for running in self._models if running.is_due(frame)]
        if due:
            needed = {
                name: f"model {running.setting.name!r}" for running in due for name in running.setting.inputs
            }
            tensors = gather(messages, needed, self._only_input, self, _RECEIVERS, InferenceError)
            for running in due:
                running.fit(tensors)
            self._run(due, tensors, op_input, context)
        message: dict[str, Any] = {}
        for running in self._models:
            results = running.results or (running.zeros() if self.sends_zeros_first else [])
            message.update(zip(running.setting.outputs, results, strict=False))
        if self._sent is not None:
            message = {name: message[name] for name in self._sent if name in message}
        if message:  # a model that never ran has nothing to send
            # The results of models that were not due are sent again, as they are.
            op_output.emit(TensorMap(message), _TRANSMITTER, constant=len(due) < len(self._models))

    def _activate(self, specs: Any) -> None:
        """Apply activation specs."""
        where = f"operator {self.name!r}, input {_SPECS!r}"
        models = {running.setting.name: running for running in self._models}
        for spec in specs if isinstance(specs, (list, tuple)) else [specs]:
            name, active = getattr(spec, "model_name", None), getattr(spec, "active", None)
            if name is None or active is None:
                raise InferenceError(
                    f"{where}: expected a list of InferenceOp.ActivationSpec, received {spec!r}"
                )
            if name not in models:
                raise InferenceError(f"{where}: there is no model {name!r}; there is {choices(models, name)}")
            models[name].is_active = bool(active)

    def _run(
        self, due: _Models, tensors: _Tensors, op_input: InputContext, context: ExecutionContext
    ) -> None:
        """Run models: with a GPU where they were loaded, otherwise where the data is."""
        is_away = any(tensor.device.is_cuda for tensor in tensors.values())
        if self._has_gpu:
            on_device = [running for running in due if running.model.device_id is not None]
        else:
            on_device = due if is_away else []
        uses_device = is_away or on_device or (self._has_gpu and self.transmit_on_cuda)
        if not uses_device or not context.is_gpu_available:
            self._run_all(due, [partial(running.run_on_host, tensors) for running in due])
            return
        own = op_input.receive_cuda_stream(_RECEIVERS)
        needed = dict.fromkeys(name for running in on_device for name in running.setting.inputs)
        here = {name: self._on_device(tensors[name], own) for name in needed}
        local = self._on_host([running for running in due if running not in on_device], tensors, own)
        calls = {running.setting.name: partial(running.run_on_host, local) for running in due}
        targets = [running.allocate(self.allocator, own) for running in on_device]
        with self._streams(on_device, own, context) as streams:
            for running, outputs, stream in zip(on_device, targets, streams, strict=True):
                calls[running.setting.name] = partial(running.run_on_device, here, outputs, stream)
            self._run_all(due, list(calls.values()), together=self._has_gpu)
        for running in due:
            if running in on_device and not self.transmit_on_cuda:
                running.results = list(read_on_host([as_tensor(result) for result in running.results], own))
            elif running not in on_device and self.transmit_on_cuda:
                running.results = [self._on_device(as_tensor(result), own) for result in running.results]

    def _run_all(self, due: _Models, calls: list[Callable[[], list[Any]]], together: bool = True) -> None:
        """Call a function for each model, at the same time if that is wanted; all have ended when this returns."""
        if self._threads is None or len(calls) == 1 or not together:
            results = [call() for call in calls]
        else:
            results = _call_together(self._threads, calls)
        for running, result in zip(due, results, strict=True):
            running.results = result

    def _on_device(self, tensor: Tensor, own: StreamHandle) -> Tensor:
        """Return a C-contiguous tensor in device memory: the given one, or a copy."""
        return to_device(tensor, own, self.allocator, self.name)

    def _on_host(self, models: _Models, tensors: _Tensors, own: StreamHandle) -> _Tensors:
        """Return the inputs of models on the host; wait for those that the GPU has."""
        local = {name: tensors[name] for running in models for name in running.setting.inputs}
        away = [name for name, tensor in local.items() if tensor.device.is_cuda]
        if away:
            copies = read_on_host([local[name] for name in away], own, self._host_memory)
            local.update((name, as_tensor(copy)) for name, copy in zip(away, copies, strict=True))
        return local

    @contextmanager
    def _streams(
        self, models: _Models, own: StreamHandle, context: ExecutionContext
    ) -> Iterator[list[StreamHandle]]:
        """Yield the stream of each model: one of its own if several run at the same time, or the operator's.

        A model's own stream begins after the operator's, which goes on after all of them.
        """
        for running in models:
            if running.stream is None and self._is_parallel:
                running.stream = context.allocate_cuda_stream(f"model {running.setting.name}")
        streams = [running.stream or own for running in models]
        others = [stream for stream in streams if stream is not own]
        for stream in others:
            context.synchronize_streams([own], stream)
        try:
            yield streams
        finally:
            context.synchronize_streams(others, own)


def _call_together(threads: Executor, calls: list[Callable[[], list[Any]]]) -> list[list[Any]]:
    """Call functions at the same time, the first on this thread; raise the first error when all have ended."""
    first: Future[list[Any]] = Future()
    futures = [first, *(threads.submit(call) for call in calls[1:])]
    try:
        first.set_result(calls[0]())
    except Exception as error:
        first.set_exception(error)
    finally:
        waits.wait_for_futures(futures[1:])  # an interrupt leaves nothing running either
    errors = [failure for future in futures if (failure := future.exception()) is not None]
    for other in errors[1:]:
        errors[0].add_note(f"and at the same time: {other}")
    if errors:
        raise errors[0]
    return [future.result() for future in futures]
