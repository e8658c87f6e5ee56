"""Plain operators on streams of their own and on shared ones of a real GPU: no frame is wrong.

A reader launches a kernel that looks at a frame a while later, and releases the frame at once.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, Operator

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.usefixtures("real")

SIZE, QUICK, FRAMES = 4_096, 500, 800
SHORT_NS, LONG_NS = 20_000, 400_000  # of a reader, while the device keeps up, and then

READ = cupy.RawKernel(
    """extern "C" __global__ void look(const float* frame, float expected, long long ns, int* wrong) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < ns);
    if (frame[threadIdx.x] != expected) atomicAdd(wrong, 1);
}""",
    "look",
)


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.number += 1
        op_output.emit((self.number, self.make(self.number)), "out")

    def make(self, number: int) -> Any:
        return cupy.full(SIZE, number, cupy.float32)


class TorchSource(Source):
    def make(self, number: int) -> Any:
        import torch

        return torch.full((SIZE,), number, dtype=torch.float32, device="cuda")


class AsideSource(Source):
    """Makes its frames on a stream of the library, and waits for them."""

    def start(self) -> None:
        super().start()
        self.aside = cupy.cuda.Stream(non_blocking=True)

    def make(self, number: int) -> Any:
        with self.aside:
            made = cupy.full(SIZE, number, cupy.float32)
        self.aside.synchronize()
        return made


class ForeignSource(Source):
    """Makes frames that PyTorch owns, as arrays of CuPy, from some time on."""

    def make(self, number: int) -> Any:
        import torch

        if number < QUICK // 2:
            return super().make(number)
        return cupy.from_dlpack(torch.full((SIZE,), number, dtype=torch.float32, device="cuda"))


class Double(Operator):
    """Passes frames on, every other one as its double."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        number, frame = op_input.receive("in")
        op_output.emit((2 * number, frame * 2) if number % 2 else (number, frame), "out")


class Reader(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.wrong = cupy.zeros(1, cupy.int32)
        self.held: deque[Any] = deque()
        self.computes = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.held.append(op_input.receive("in"))
        self.computes += 1
        if len(self.held) > self.fragment.holds:  # type: ignore[attr-defined]
            number, frame = self.held.popleft()
            address = frame.data_ptr() if hasattr(frame, "data_ptr") else frame.data.ptr
            nanoseconds = SHORT_NS if self.computes < QUICK else LONG_NS
            arguments = cupy.uint64(address), cupy.float32(number), cupy.int64(nanoseconds), self.wrong
            READ((1,), (SIZE // 4,), arguments)

    def stop(self) -> None:
        assert int(self.wrong[0]) == 0


class Frames(Application):
    def __init__(self, kind: type[Source], workers: int, holds: int) -> None:
        super().__init__()
        self.kind, self.workers, self.holds = kind, workers, holds

    def compose(self) -> None:
        self.scheduler(
            EventBasedScheduler(self, worker_thread_number=self.workers)
            if self.workers
            else GreedyScheduler(self)
        )
        source = self.kind(self, CountCondition(self, FRAMES), name="source")
        middle = Double(self, name="double")
        self.readers = [Reader(self, name=f"reader{number}") for number in range(2)]
        self.add_flow(source, middle)
        for reader in self.readers:
            self.add_flow(middle, reader)


@pytest.mark.parametrize("stream_per", ["operator", "branch", "program"])
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("holds", [0, 5])
@pytest.mark.parametrize("kind", [Source, TorchSource, AsideSource, ForeignSource])
def test_no_frame_is_wrong_whoever_shares_a_stream(
    kind: type[Source], holds: int, workers: int, stream_per: str
) -> None:
    if kind in (TorchSource, ForeignSource):
        pytest.importorskip("torch")
    app = Frames(kind, workers, holds)
    app.stream_per = stream_per
    app.run()
    assert [reader.computes for reader in app.readers] == [FRAMES, FRAMES]
