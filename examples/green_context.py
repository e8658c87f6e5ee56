"""Streams on slices of the GPU, in two small applications.

    python examples/green_context.py                                two flows side by side, each on its own SMs
    python examples/green_context.py combine                        two sources, a combiner, a receiver
    python examples/green_context.py combine --green-context        the same on two slices of the GPU
    python examples/green_context.py combine --default-stream       the same without any stream of its own

Frames are CuPy arrays where there is a GPU, and buffers of a simulated one where there is none. The operators
do not know which: all that they do with a frame is in `Frames`, at the end.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np

from penstock import Application, CountCondition, EventBasedScheduler, Operator, OperatorSpec, gpu
from penstock.conditions import CudaStreamCondition
from penstock.gpu import sim
from penstock.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool

LENGTH = 1 << 16


class Source(Operator):
    """Emits frames filled with 0, 1, 2 and so on times a factor, made on a stream that it asks for by name."""

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        frames: Frames,
        factor: int = 1,
        own_stream: bool = True,
        **kwargs: Any,
    ) -> None:
        self.frames, self.factor, self.own_stream = frames, factor, own_stream
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0
        self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = None
        if self.own_stream:
            stream = context.allocate_cuda_stream("source")  # the same one every time
            op_output.set_cuda_stream(stream, "out")
        self.sms = sms_of(stream)
        op_output.emit(self.frames.full(self.factor * self.number, stream), "out")
        self.number += 1


class Combiner(Operator):
    """Adds two frames on a stream of its own, which is ordered after both."""

    def __init__(
        self, fragment: Any, *args: Any, frames: Frames, own_stream: bool = True, **kwargs: Any
    ) -> None:
        self.frames, self.own_stream = frames, own_stream
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in1")
        spec.input("in2")
        spec.output("out")

    def start(self) -> None:
        self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        one = op_input.receive("in1")
        stream = op_input.receive_cuda_stream("in1", allocate=self.own_stream)
        other = op_input.receive("in2")
        op_input.receive_cuda_stream("in2", allocate=self.own_stream)  # the same stream, after "in2" as well
        self.sms = sms_of(stream)
        op_output.emit(self.frames.add(one, other, stream), "out")  # carries the stream


class Receiver(Operator):
    """Reads frames back and counts those that hold what they should."""

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        frames: Frames,
        factor: int = 1,
        own_stream: bool = True,
        **kwargs: Any,
    ) -> None:
        self.frames, self.factor, self.own_stream = frames, factor, own_stream
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        self.received = self.right = 0
        self.sms = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in", allocate=self.own_stream)
        self.sms = sms_of(stream)
        values = self.frames.read(frame, stream)
        self.right += bool((values == self.factor * self.received).all())
        self.received += 1


class Parallel(Application):
    """Two flows, a transmitter and a receiver each; the streams of each flow are on a slice of its own."""

    def __init__(self, frames: Frames, count: int, sms: list[int]) -> None:
        super().__init__()
        self.frames, self.count, self.sms = frames, count, sms

    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        slices = CudaGreenContextPool(self, dev_id=0, sms_per_partition=self.sms, name="slices")
        self.flows = []
        for n in range(len(self.sms)):
            context = CudaGreenContext(self, slices, n, name=f"slice{n}")
            streams = CudaStreamPool(self, cuda_green_context=context, name=f"streams{n}")
            count = CountCondition(self, self.count)
            transmitter = Source(
                self, count, streams, frames=self.frames, factor=n + 1, name=f"transmitter{n}"
            )
            receiver = Receiver(self, streams, frames=self.frames, factor=n + 1, name=f"receiver{n}")
            self.add_flow(transmitter, receiver)
            self.flows.append((transmitter, receiver))

    def report(self) -> bool:
        """Print what came of it; return whether everything was right."""
        for n, (transmitter, receiver) in enumerate(self.flows):
            print(
                f"flow {n}: {transmitter.sms} SMs ({self.sms[n]} asked for), "
                f"{receiver.right} of {self.count} results right"
            )
        return all(receiver.right == self.count for _, receiver in self.flows)


class Combine(Application):
    """Two sources, one combiner and one receiver: on plain streams, on two slices, or on the default stream."""

    def __init__(
        self, frames: Frames, count: int, sms: list[int], *, default_stream: bool, green_context: bool
    ) -> None:
        super().__init__()
        self.frames, self.count, self.sms = frames, count, sms
        self.default_stream, self.green_context = default_stream, green_context

    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        if self.green_context:
            slices = CudaGreenContextPool(self, dev_id=0, sms_per_partition=self.sms, name="slices")
            making, using = (
                CudaStreamPool(self, 0, 0, 0, 0, 5, CudaGreenContext(self, slices, n), name=f"streams{n}")
                for n in range(2)
            )
        else:
            making = using = CudaStreamPool(self, 0, 0, 0, 0, 5, name="streams")
        shared: dict[str, Any] = {"frames": self.frames, "own_stream": not self.default_stream}
        one, other = (
            Source(self, making, CountCondition(self, self.count), factor=factor, name=name, **shared)
            for name, factor in (("source1", 1), ("source2", 10))
        )
        combiner = Combiner(self, using, name="combiner", **shared)
        # The receiver copies to the host, which waits; with this it is not run before there is nothing to wait for.
        ready = CudaStreamCondition(self, receiver="in", name="ready")
        receiver = Receiver(self, using, ready, factor=11, name="receiver", **shared)
        self.add_flow(one, combiner, {("out", "in1")})
        self.add_flow(other, combiner, {("out", "in2")})
        self.add_flow(combiner, receiver)
        self.steps = one, other, combiner, receiver

    def report(self) -> bool:
        """Print what came of it; return whether everything was right."""
        kind = "the default stream" if self.default_stream else "a stream of its own"
        for step in self.steps:
            print(f"{step.name}: {kind}, {step.sms} SMs")
        receiver = self.steps[-1]
        print(f"{receiver.right} of {self.count} results right")
        return bool(receiver.right == self.count)


def sms_of(stream: Any) -> int:
    """Give the SMs that a stream may use, by the driver's own count; all for the default stream."""
    # The default stream is 0, so it is false; None is what an operator has that never asked for a stream.
    if stream:
        return int(stream.stream.resources.sm.sm_count)
    device = gpu.Device(0)
    device.set_current()
    return int(device.resources.sm.sm_count)


class Frames(Protocol):
    """What the operators do with frames, each on a stream; None, or 0, is the default stream."""

    def full(self, value: int, stream: Any) -> Any: ...
    def add(self, one: Any, other: Any, stream: Any) -> Any: ...
    def read(self, frame: Any, stream: Any) -> np.ndarray: ...


class CupyFrames:
    """Frames are CuPy arrays."""

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise SystemExit(
                f"on a GPU this needs CuPy ({error}): install penstock[cupy], or set PENSTOCK_DEVICE=sim"
            ) from None
        self.cupy = cupy

    def full(self, value: int, stream: Any) -> Any:
        with self._on(stream):
            return self.cupy.full(LENGTH, value, dtype=self.cupy.int32)

    def add(self, one: Any, other: Any, stream: Any) -> Any:
        with self._on(stream):
            return one + other

    def read(self, frame: Any, stream: Any) -> np.ndarray:
        with self._on(stream):
            return self.cupy.asnumpy(frame)  # waits for the copy

    def _on(self, stream: Any) -> Any:
        return stream.cupy() if stream else self.cupy.cuda.Stream.null


class SimulatedFrames:
    """Frames are buffers of a simulated device; a kernel takes a millisecond, and has its effect when it ends."""

    def full(self, value: int, stream: Any) -> Any:
        return self._launch("full", lambda out: out.view(np.int32).fill(value), stream)

    def add(self, one: Any, other: Any, stream: Any) -> Any:
        def add(out: np.ndarray, *terms: np.ndarray) -> None:
            one, other = (term.view(np.int32) for term in terms)
            np.add(one, other, out=out.view(np.int32))

        return self._launch("add", add, stream, one, other)

    def read(self, frame: Any, stream: Any) -> np.ndarray:
        host = sim.LegacyPinnedMemoryResource().allocate(frame.size)
        frame.copy_to(host, stream=self._on(stream))
        self._on(stream).sync()
        return np.from_dlpack(host).view(np.int32)

    def _launch(self, name: str, effect: Any, stream: Any, *frames: Any) -> Any:
        device = sim.Device(0)
        device.set_current()
        out = device.allocate(4 * LENGTH, stream=self._on(stream))
        kernel = sim.Kernel(name, 1e-3, effect)
        sim.launch(self._on(stream), sim.LaunchConfig(grid=64, block=1024), kernel, out, *frames)
        return out

    def _on(self, stream: Any) -> Any:
        return stream.stream if stream else sim.Device(0).default_stream


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", nargs="?", choices=["parallel", "combine"], default="parallel")
    parser.add_argument("--count", type=int, default=10, metavar="N", help="frames from each source (10)")
    parser.add_argument("--sms", type=int, nargs=2, default=[16, 40], help="SMs of the two slices (16 40)")
    parser.add_argument(
        "--default-stream", action="store_true", help="combine: take no streams from the pool"
    )
    parser.add_argument("--green-context", action="store_true", help="combine: put the pools on two slices")
    options = parser.parse_args()
    if options.program == "parallel" and (options.default_stream or options.green_context):
        parser.error("--default-stream and --green-context belong to combine")
    simulated = gpu.backend() != "cuda"
    # A simulated machine in virtual time: a kernel of a millisecond takes none.
    with sim.Machine("h200") if simulated else nullcontext():
        frames: Frames = SimulatedFrames() if simulated else CupyFrames()
        if options.program == "parallel":
            app: Any = Parallel(frames, options.count, options.sms)
        else:
            app = Combine(
                frames,
                options.count,
                options.sms,
                default_stream=options.default_stream,
                green_context=options.green_context,
            )
        app.run()
        print(f"{gpu.Device(0).name}: {sms_of(None)} SMs")
        return not app.report()


if __name__ == "__main__":
    raise SystemExit(main())
