"""Captured segments on the GPU under NVIDIA's memory checker: no replay uses memory that was freed.

    make gpu-sanitize        needs a GPU, CuPy and compute-sanitizer

CuPy's pool is not used outside of recordings: what is freed is freed, so that the checker sees it. With ``--plant``
a recording is used whose memory was freed, which shows that it is found.

The checker must not take backtraces: for those it keeps Python's frames, with the arrays in them, and a slot of a
ring is in use as long as its array is.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import cupy

from headrace import Application, CountCondition, Operator

FRAMES, SIZES = 160, (4_096, 1_024)


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(stream, "out")
        with stream.cupy():
            frame = cupy.empty(SIZES[self.sent % 5 == 0], cupy.float32)
            frame.fill(self.sent)
        op_output.emit(frame, "out")
        self.sent += 1


class Stage(Operator):
    capturable = True

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        with op_input.receive_cuda_stream("in").cupy():
            op_output.emit(cupy.sqrt(data * data) + 1, "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.held: list[Any] = []
        self.found: list[float] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.held.append(op_input.receive("in"))
        self.stream = op_input.receive_cuda_stream("in")
        if len(self.held) > 2:
            self.read()

    def stop(self) -> None:
        while self.held:
            self.read()

    def read(self) -> None:
        with self.stream.cupy():
            self.found.append(float(self.held.pop(0).max()))


class App(Application):
    def compose(self) -> None:
        source = Source(self, CountCondition(self, FRAMES), name="source")
        stages = [Stage(self, name=f"stage{k}") for k in range(3)]
        self.sink = Sink(self, name="sink")
        for one, other in itertools.pairwise([source, *stages, self.sink]):
            self.add_flow(one, other)
        self.segment = self.capture(*stages, strict=True)


def plant() -> None:
    """Replay a graph whose memory was freed."""
    from headrace import gpu

    device = gpu.Device(0)
    device.set_current()
    stream = device.create_stream(options=gpu.StreamOptions(nonblocking=True))
    handle = gpu.StreamHandle(stream)
    data = cupy.zeros(1 << 20, cupy.float32)
    with handle.cupy():
        data += 1
        stream.sync()
        builder = stream.create_graph_builder()
        builder.begin_building("relaxed")
        data += 1
    graph = builder.end_building().complete()
    del data
    graph.launch(stream)
    stream.sync()


def main() -> None:
    cupy.cuda.set_allocator(None)  # straight from the driver, and straight back to it
    if "--plant" in sys.argv:
        plant()
        return
    app = App()
    app.run()
    assert app.segment.replayed > FRAMES // 3, app.segment.report()
    assert app.sink.found == [number + 3.0 for number in range(FRAMES)]
    print("the captured segments were right")


if __name__ == "__main__":
    main()
