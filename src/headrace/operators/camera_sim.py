"""CameraSimOp: a simulated camera whose frames have a known truth."""

from __future__ import annotations

from collections.abc import Generator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import gpu
from headrace.core.contexts import ExecutionContext, OutputContext
from headrace.core.errors import ParameterError
from headrace.core.parameters import declared, parameter
from headrace.core.spec import OperatorSpec
from headrace.operators.arrays import cuda_source, launch
from headrace.operators.frame_memory import DEVICE, FrameMemory
from headrace.operators.paced_source import PacedSource
from headrace.tensor import Tensor, TensorMap
from headrace.tensor.copies import simulate, simulated_memory, upload
from headrace.video import BayerSensor, Scene, Truth

if TYPE_CHECKING:
    from headrace.resources import Allocator

_BLOCK = 256

_FRAME = gpu.kernel("camera_frame", source=cuda_source("camera_frame"), seconds=1e-6)


@declared
class CameraSimOp(PacedSource[Any]):
    """Emits Bayer frames of a moving scene, at a set rate, until `count` frames were emitted.

    Frame n shows the scene at n / `frame_rate` seconds, whatever the clock: two runs give the same frames.
    `truth(n)` returns what frame n shows, so that detectors can be scored. On the host, frames are made ahead on a
    thread of their own; on a device, by a kernel on the operator's stream. Both give the same pixels.

    **Output** ``output``: a TensorMap of one tensor, (height, width), which `BayerDemosaicOp` takes. The
    acquisition timestamp is when the frame was due by the run's clock. The metadata has n under `frame_number_key`,
    a name of this camera's own, so that the frames of several cameras can be joined.

    **Memory**: on the host, `read_ahead` frames. On a device, one block of the size of a frame for each that is in
    use downstream; beside them the operator holds a background and, with noise, a field of 2 bytes per pixel.

    Parameters
    ----------
    width, height
        The size in pixels; both even.
    frame_rate
        Frames per second.
    count
        The number of frames; 0: no end.
    realtime
        Whether to keep to the rate; otherwise frames are emitted as fast as they are received.
    dtype
        ``"uint8"`` or ``"uint16"``; full scale is 255 or 65535.
    bayer_grid_pos
        The pattern: 0 BGGR, 1 RGGB, 2 GBRG, 3 GRBG.
    objects
        The number of discs that move, up to 64.
    exposure
        The factor on the light of the scene; what exceeds full scale is cut off.
    noise
        The standard deviation of the noise, as a part of full scale.
    shot_noise
        The variance of the noise that grows with the light, as a part of full scale at full scale.
    seed
        Chooses the scene and the noise.
    out_tensor_name
        The name of the tensor.
    storage_type
        Where the frames are: ``"system"`` (the default), ``"host"`` (pinned), ``"device"`` or ``"cuda_managed"``.
    allocator
        The allocator of memory that is not system memory; an UnboundedAllocator unless given.
    read_ahead
        The number of frames that are made ahead on the host.
    """

    width: int = 1920
    height: int = 1080
    frame_rate: float = 60.0
    count: int = parameter(default=0, minimum=0)
    realtime: bool = True
    dtype: Any = None
    bayer_grid_pos: int = 2
    objects: int = 4
    exposure: float = 1.0
    noise: float = 0.01
    shot_noise: float = 0.0
    seed: int = 0
    out_tensor_name: str = ""
    storage_type: Any = None
    allocator: Allocator = parameter(default=None)
    read_ahead: int = parameter(default=4, minimum=1)

    _made: tuple[Any, BayerSensor] | None = None

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the output."""
        spec.output("output")

    @property
    def frame_number_key(self) -> str:
        """The name of the frame's number in the metadata: ``"camera.frame_number"`` for the operator ``camera``."""
        return f"{self.name}.frame_number"

    @property
    def sensor(self) -> BayerSensor:
        """The sensor, which makes the frames."""
        # Made anew where a parameter has changed: `truth` may be asked before, during and after a run.
        scene = {"width": self.width, "height": self.height, "objects": self.objects, "seed": self.seed}
        settings: dict[str, Any] = {
            "rate": self.frame_rate,
            "dtype": self.dtype or "uint8",
            "grid_position": self.bayer_grid_pos,
            **{name: getattr(self, name) for name in ("exposure", "noise", "shot_noise", "seed")},
        }
        if self._made is None or self._made[0] != (scene, settings):
            try:
                self._made = (scene, settings), BayerSensor(Scene(**scene), **settings)
            except (TypeError, ValueError) as error:
                raise ParameterError(f"operator {self.name!r}: {error}") from error
        return self._made[1]

    def truth(self, number: int) -> Truth:
        """Return what a frame shows: its objects, the picture without noise, and the label of each pixel."""
        return self.sensor.truth(number)

    def initialize(self) -> None:
        """Check the parameters and make the scene."""
        self._memory = FrameMemory(self, self.storage_type, self.allocator)
        self._on_device: _DeviceSensor | None = None
        _ = self.sensor

    def stop(self) -> None:
        """End the thread and let go of the device's memory."""
        super().stop()
        self._on_device = None

    def frames(self) -> Generator[Any, None, None]:
        """Make the frames, or on a device their numbers."""
        sensor, on_device = self.sensor, self._memory.storage_type == DEVICE
        number = 0
        while not self.count or number < self.count:
            yield number, None if on_device else sensor.bayer(number)
            number += 1

    def time_of(self, number: int, frame: Any) -> int | None:
        """Return when a frame is due."""
        return round(number * 1_000_000_000 / Fraction(self.frame_rate)) if self.realtime else None

    def emit_frame(self, frame: Any, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit a frame."""
        number, array = frame
        placed: TensorMap
        if array is None:
            stream = self._memory.stream(op_output, context, "output")
            shape = (self.height, self.width)
            tensor = self._memory.allocate(shape, self.sensor.dtype, DEVICE, stream)
            if self._on_device is None:
                self._on_device = _DeviceSensor(self.sensor, stream)
            self._on_device.draw(number, tensor, stream)
            placed = TensorMap({self.out_tensor_name: tensor})
        else:
            placed = self._memory.place({self.out_tensor_name: array}, op_output, context, "output")
        if self.is_metadata_enabled:
            self.metadata[self.frame_number_key] = number
        due = self.due_of(number, frame)
        op_output.emit(placed, "output", acq_timestamp=context.timestamp if due is None else due)


class _DeviceSensor:
    """A sensor that draws on a device, with what all frames share in the device's memory."""

    def __init__(self, sensor: BayerSensor, stream: gpu.StreamHandle) -> None:
        self._sensor = sensor
        colors = 0
        for place in range(4):
            colors |= sensor.color_at(place // 2, place % 2) << (4 * place)
        self._colors = colors
        if stream.backend.runs_cuda:
            self._background = upload(sensor.background, stream)
            self._sigma = upload(sensor.sigma.astype(np.int32), stream)
            self._gauss = upload(sensor.gauss, stream)

    def draw(self, number: int, tensor: Tensor, stream: gpu.StreamHandle) -> None:
        """Draw a frame into a tensor, on a stream."""
        sensor = self._sensor
        size = sensor.scene.width * sensor.scene.height
        if not stream.backend.runs_cuda:
            memory = simulated_memory(tensor)

            def effect() -> None:
                memory[...] = sensor.bayer(number)

            simulate("camera_frame", size / 1e12 + 2e-6, stream, effect)
            return
        objects = sensor.truth(number).objects
        rows = [
            [*(round(value * 16) for value in (one.x, one.y, one.radius)), *sensor.object_levels(one)]
            for one in objects
        ]
        table = upload(np.array(rows or [[0] * 6], np.int32), stream)
        down, across = sensor.offset(number)
        margin = sensor.gauss.shape[1] - sensor.scene.width if sensor.is_noisy else 0
        numbers: list[Any] = [
            np.int32(value)
            for value in (
                len(objects), self._colors, sensor.scene.width, sensor.scene.height, down, across, margin,
                sensor.full_scale,
            )
        ]  # fmt: skip
        arguments: list[Any] = [tensor, self._background, self._sigma, self._gauss, table, *numbers]
        launch(stream, _FRAME.on(stream.stream.device), -(-size // _BLOCK), _BLOCK, arguments)
