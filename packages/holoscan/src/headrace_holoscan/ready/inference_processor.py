"""InferenceProcessorOp: operations on the results of networks, chosen by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core import ExecutionContext, InputContext, IOSpec, OperatorSpec, OutputContext
from headrace.gpu import StreamHandle
from headrace.operators.bases import (
    TensorOperator,
    Workplace,
    check_contiguous,
    declared,
    gather,
    named_values,
    needs_fragment,
    parameter,
    read_on_host,
    workplace,
)
from headrace.tensor import Tensor, TensorMap, as_tensor
from headrace.vocabulary import choices
from headrace_holoscan.ready import host_results
from headrace_holoscan.ready.custom_kernels import CustomKernel, read_kernels
from headrace_holoscan.ready.find_maxima import FIND_MAXIMA, THREADS_PER_CHANNEL

if TYPE_CHECKING:
    from headrace.resources import Allocator

_CUSTOM = "custom_cuda_kernel"
# Each operation with the number of texts that follow it, separated by commas.
_OPERATIONS = {
    "max_per_channel_scaled": 0,
    "scale_intensity_cpu": 0,
    "generate_boxes": 0,
    "print": 0,
    "print_int32": 0,
    "print_custom_binary_classification": 2,
    "export_binary_classification_to_csv": 4,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "scale_intensity_cpu": host_results.equalize,
    "print": partial(host_results.print_values, np.float32),
    "print_int32": partial(host_results.print_values, np.int32),
    "print_custom_binary_classification": host_results.print_likelier,
}
_WITH_RESULT = ("max_per_channel_scaled", "scale_intensity_cpu", _CUSTOM)


@dataclass(slots=True)
class _Operation:
    """One operation of `process_operations`.

    Attributes
    ----------
    keys
        The tensors that it takes.
    run
        The operation: a function of arrays on the host, or of a tensor and a stream, and of the place for errors.
    is_on_host
        Whether it takes arrays on the host.
    results
        The names of its results.
    """

    where: str
    name: str
    keys: list[str]
    run: Callable[..., Any]
    is_on_host: bool
    results: list[str]

    def process(self, tensors: dict[str, Tensor], stream: StreamHandle | None) -> dict[str, Any]:
        """Carry out the operation; return its results by name."""
        given = [tensors[key] for key in self.keys]
        if self.is_on_host:
            result = self.run(*read_on_host(given, stream), self.where)
        else:
            result = self.run(*given, stream, self.where)
        return result if isinstance(result, dict) else dict.fromkeys(self.results, result)


@declared
class InferenceProcessorOp(TensorOperator):
    """Processes the results of networks: finds maxima, draws boxes, prints, or runs CUDA kernels of the program.

    It takes tensors by name from all messages at ``receivers``, and emits a TensorMap of the results at
    ``transmitter``. These are the operations:

    - ``max_per_channel_scaled``: of float32 (1, rows, columns, channels), the row and the column of each channel's
      maximum, in [0, 1): float32 (1, 2 * channels). On the host or the device.
    - ``scale_intensity_cpu``: of float32 (1, rows, columns), the picture with its histogram equalized: uint8
      (rows, columns, 3). On the host.
    - ``generate_boxes``: of the tensors ``"boxes:scores:labels"``, the boxes of the objects that were found and the
      places of their texts, for a viewer; of ``"masks:scores:labels"``, a mask. On the host; see `config_path`.
    - ``print``, ``print_int32``: prints the values, float32 or int32.
    - ``print_custom_binary_classification,<one>,<other>``: prints the likelier of two texts.
    - ``export_binary_classification_to_csv,<app>,<a>,<b>,<c>``: appends the likelier of two classes to the file
      ``$HOLOSCAN_ANALYTICS_DATA_DIRECTORY/<app>/<time>/$HOLOSCAN_ANALYTICS_DATA_FILE_NAME``, by default in the
      current directory and named ``data.csv``. The last three texts are the titles of its columns.
    - ``custom_cuda_kernel-<id>``: what a kernel of `custom_kernels` computes. Several are chained by colons,
      ``custom_cuda_kernel-1:custom_cuda_kernel-2``. On the device.

    Operations on the host wait for tensors that are on a device. A result needs one block of its size; so does each
    kernel but the last of a chain, and each tensor that is copied to a GPU.

    Parameters
    ----------
    allocator
        The allocator of the results; an UnboundedAllocator unless given.
    process_operations
        For each tensor a list of operations.
    processed_map
        For each tensor the names of its results, one for each operation that has a result.
    in_tensor_names
        The tensors that every tick must bring; those of `process_operations` unless given.
    out_tensor_names
        The results to emit; all unless given.
    custom_kernels
        For each kernel ``cuda_kernel-<id>``: CUDA C++, or the path of a ``.cu`` file, with a function
        ``customKernel<id>``; and as options ``out_dtype-<id>`` (``kFloat32``, the default, ``kFloat16``,
        ``kInt8``, ``kUInt8``, ``kInt32``, ``kInt64``, ``kBool``), ``output_dimensions-<id>`` (``"480,640,3"``;
        the input's unless given) and ``thread_per_block-<id>`` (``"256"``, ``"16,16"`` or ``"8,8,8"``). The
        function takes the input, the output, and the number of elements; with two or three numbers of threads,
        the input's first two or three dimensions instead.
    input_on_cuda
        Whether to work on the device. Where there is no GPU, tensors in host memory stay there.
    output_on_cuda, transmit_on_cuda
        Whether the results, and what is emitted, is in device memory; where there is no GPU, results of the
        host stay there. Custom kernels need `input_on_cuda` and `output_on_cuda`.
    disable_transmitter
        Whether there is no output, for operations without results.
    config_path
        The YAML file of ``generate_boxes``.
    """

    allocator: Allocator = parameter(default=None)
    process_operations: dict[str, Any] = parameter(default_factory=dict)
    processed_map: dict[str, Any] = parameter(default_factory=dict)
    in_tensor_names: list[str] = parameter(default_factory=list)
    out_tensor_names: list[str] = parameter(default_factory=list)
    custom_kernels: dict[str, str] = parameter(default_factory=dict)
    input_on_cuda: bool = False
    output_on_cuda: bool = False
    transmit_on_cuda: bool = False
    disable_transmitter: bool = False
    config_path: str = ""

    @needs_fragment
    def _create(self, fragment: Any, *args: Any, name: str = "", **params: Any) -> None:
        # `setup`, which declares the output or does not, needs to know this.
        settings = {arg.name: arg.value for arg in named_values(args)} | params
        self._has_output = not settings.get("disable_transmitter", False)
        super().__init__(
            fragment, *args, name=name or fragment._headrace.unused_name("postprocessor"), **params
        )

    if not TYPE_CHECKING:  # a type checker has the parameters as arguments (`declared`)
        __init__ = _create

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the ports."""
        spec.input("receivers", size=IOSpec.ANY_SIZE)
        if self._has_output:
            spec.output("transmitter")

    def initialize(self) -> None:
        """Check the parameters, and read the files that they name."""
        super().initialize()
        if self.disable_transmitter == self._has_output:
            raise ValueError(
                f"operator {self.name!r}: disable_transmitter decides whether there is an output, so it is given "
                "when the operator is made, not later"
            )
        if self.config_path and not Path(self.config_path).is_file():
            raise ValueError(f"operator {self.name!r}: config_path: there is no file {self.config_path!r}")
        kernels = read_kernels(self.custom_kernels, f"operator {self.name!r}")
        self._files: list[host_results.BinaryResults] = []
        self._plan: list[_Operation] = []
        results: dict[str, str] = {}
        for key, texts in self.process_operations.items():
            operations = [self._parse(key, text, kernels) for text in _as_list(texts)]
            self._name_results(key, operations, results)
            self._plan += operations
        for name in self.out_tensor_names:
            if name not in results:
                raise ValueError(
                    f"operator {self.name!r}: out_tensor_names has {name!r}, and no operation has that result; "
                    f"there is {choices(results, name)}"
                )

    def stop(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Process one message of each connection."""
        needed = {key: "process_operations" for operation in self._plan for key in operation.keys}
        needed |= {name: "in_tensor_names" for name in self.in_tensor_names if name not in needed}
        unnamed = next(iter(needed)) if len(needed) == 1 else None
        tensors = gather(op_input.receive("receivers"), needed, unnamed, self, "receivers")
        stream = workplace(
            self,
            op_input,
            "receivers",
            *tensors.values(),
            pool=self.allocator,
            may_move=self.input_on_cuda or self.transmit_on_cuda,
        ).stream
        results: dict[str, Any] = {}
        for operation in self._plan:
            results |= operation.process(tensors, stream)
        if self._has_output:
            emitted = {
                name: self._emitted(results[name], stream) for name in self.out_tensor_names or results
            }
            op_output.emit(TensorMap(emitted), "transmitter")

    # The plan of a run.

    def _parse(self, key: str, text: str, kernels: dict[str, CustomKernel]) -> _Operation:
        """Return the operation that a text names."""
        where = f"operator {self.name!r}, process_operations[{key!r}]"
        if not isinstance(text, str):
            raise ValueError(f"{where}: an operation is named by a str, not {text!r}")
        name, *texts = text.split(",")
        keys, results = [key], list[str]()
        run: Callable[..., Any]
        if text.startswith(_CUSTOM):
            name, run = _CUSTOM, partial(self._run_kernels, self._chain(text, kernels, where))
        elif name not in _OPERATIONS:
            raise ValueError(
                f"{where}: the operation {name!r} is not known; it is one of "
                f"{choices([*_OPERATIONS, f'{_CUSTOM}-<id>'], name)}"
            )
        elif len(texts) != _OPERATIONS[name]:
            raise ValueError(
                f"{where}: {name} takes {_OPERATIONS[name]} texts, separated by commas, after its name, not "
                f"{len(texts)}"
            )
        elif name == "max_per_channel_scaled":
            run = self._find_maxima
        elif name == "generate_boxes":
            boxes = host_results.read_boxes(self.config_path, key.split(":"), where)
            keys, run, results = key.split(":"), boxes.draw, boxes.results
        elif name == "export_binary_classification_to_csv":
            self._files.append(host_results.BinaryResults(texts[0], texts[1:]))
            run = self._files[-1].write
        else:
            run = partial(_FUNCTIONS[name], *texts)
        is_on_host = name not in (_CUSTOM, "max_per_channel_scaled")
        where = f"operator {self.name!r}, {name} of {key!r}"
        return _Operation(where, name, keys, run, is_on_host, results)

    def _chain(self, text: str, kernels: dict[str, CustomKernel], where: str) -> list[CustomKernel]:
        """Return the kernels that a text names."""
        chain = []
        for part in text.split(":"):
            name, _, kernel = part.partition("-")
            if name != _CUSTOM or kernel not in kernels:
                raise ValueError(
                    f"{where}: {part!r} names no kernel of custom_kernels; there is "
                    f"{choices(f'{_CUSTOM}-{one}' for one in kernels)}"
                )
            chain.append(kernels[kernel])
        if not (self.input_on_cuda and self.output_on_cuda):
            raise ValueError(
                f"{where}: {text!r} runs on a device: set input_on_cuda=True and output_on_cuda=True"
            )
        return chain

    def _name_results(self, key: str, operations: list[_Operation], results: dict[str, str]) -> None:
        """Set the names of the results of the operations on a tensor; raise if they do not fit."""
        where = f"operator {self.name!r}, process_operations[{key!r}]"
        if not operations:
            raise ValueError(f"{where}: the list of operations is empty")
        if ":" in key and any(operation.name != "generate_boxes" for operation in operations):
            raise ValueError(f"{where}: only generate_boxes takes several tensors")
        unnamed = [operation for operation in operations if operation.name in _WITH_RESULT]
        names = _as_list(self.processed_map.get(key, []))
        if len(names) < len(unnamed):
            raise ValueError(
                f"{where}: {', '.join(operation.name for operation in unnamed)} need {len(unnamed)} names in "
                f"processed_map[{key!r}] for their results, not {len(names)}"
            )
        for operation, name in zip(unnamed, names, strict=False):
            operation.results = [name]
        for operation in operations:
            owner = f"processed_map[{key!r}]" if operation in unnamed else f"{operation.name} of {key!r}"
            for name in operation.results:
                if name in results:
                    raise ValueError(
                        f"operator {self.name!r}: two results are named {name!r}, and one would replace the other "
                        f"({results[name]} and {owner} have it); give each a name of its own in processed_map"
                    )
                results[name] = owner

    # The operations on a device.

    def _find_maxima(self, tensor: Tensor, stream: StreamHandle | None, where: str) -> Tensor:
        if tensor.ndim != 4 or tensor.shape[0] != 1 or not tensor.size or tensor.dl_dtype.name != "float32":
            raise ValueError(
                f"{where}: the tensor must be float32 of the shape (1, rows, columns, channels), not "
                f"{tensor.dl_dtype.name} of the shape {tensor.shape}"
            )
        check_contiguous(tensor, where)
        _, rows, columns, channels = tensor.shape
        place = Workplace(self.name, self.allocator, stream if self.input_on_cuda else None)
        maps = place.bring(tensor) if place.stream else as_tensor(read_on_host([tensor], stream)[0])
        found = place.empty((1, 2 * channels), np.float32)
        place.run(
            FIND_MAXIMA,
            channels * THREADS_PER_CHANNEL,
            found,
            maps,
            *map(np.int32, (rows, columns, channels)),
        )
        return found

    def _run_kernels(
        self, kernels: list[CustomKernel], tensor: Tensor, stream: StreamHandle | None, where: str
    ) -> Tensor:
        if stream is None:
            raise ValueError(
                f"{where}: a CUDA kernel runs on a GPU, and this tensor is in host memory on a machine without "
                "one; there is no other implementation of it"
            )
        check_contiguous(tensor, where)
        place = Workplace(self.name, self.allocator, stream)
        for kernel in kernels:
            tensor = kernel.run(place, place.bring(tensor), where)
        return tensor

    def _emitted(self, result: Any, stream: StreamHandle | None) -> Tensor:
        """Return a result in the memory that was asked for."""
        tensor = as_tensor(result)
        if not self.transmit_on_cuda and tensor.device.is_cuda:
            return as_tensor(read_on_host([tensor], stream)[0])
        if self.transmit_on_cuda and stream is not None and stream.backend.runs_cuda:
            return Workplace(self.name, self.allocator, stream).bring(tensor)
        return tensor


def _as_list(value: Any) -> list[Any]:
    """Return a list; old configurations have a plain str in place of a list of one."""
    return [value] if isinstance(value, str) else list(value)
