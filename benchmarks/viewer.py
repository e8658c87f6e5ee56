"""What a viewer costs the pipeline that it is attached to: 1080p at 60 frames a second, on the host.

A camera makes RGB frames, a filter works on each, and a sink takes them. The same pipeline runs with and without a
viewer beside the sink, in turn; a client in another process takes every picture of the page, as a browser does,
without drawing it. Three figures of each frame, over all rounds:

- the pipeline's time: from the start of the camera's compute to the end of the sink's;
- its processor time: of the pipeline's thread, which other programs on the machine do not change;
- what `compute` of the viewer took.

    python -m benchmarks.viewer [--frames 120] [--rounds 5] [--save]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import common, report
from headrace import Application, CountCondition, Operator, PeriodicCondition
from headrace.operators import HolovizOp

WIDTH, HEIGHT, RATE = 1920, 1080, 60


class Camera(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        rng = np.random.default_rng(1)
        coarse = rng.integers(0, 256, (HEIGHT // 8, WIDTH // 8 + 8, 3), dtype=np.uint8)
        self.scene = np.kron(coarse, np.ones((8, 8, 1), np.uint8))
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.fragment.began = time.perf_counter(), time.thread_time()
        self.number += 1
        shift = self.number % 64
        op_output.emit({"frame": np.ascontiguousarray(self.scene[:, shift : shift + WIDTH])}, "out")


class Filter(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = np.asarray(op_input.receive("in")["frame"])
        brighter = np.minimum(frame, 200) + np.uint8(40)
        at = float(brighter[::8, ::8, 0].mean()) / 512
        box = np.array([[at, 0.2], [at + 0.3, 0.7]], np.float32)
        op_output.emit({"frame": brighter, "box": box}, "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        wall, processor = self.fragment.began
        self.fragment.times.append((time.perf_counter() - wall, time.thread_time() - processor))


class TimedViewer(HolovizOp):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        began = time.perf_counter()
        super().compute(op_input, op_output, context)
        self.fragment.handed.append(time.perf_counter() - began)


class Pipeline(Application):
    def __init__(self, frames: int, has_viewer: bool) -> None:
        super().__init__(["benchmark"])
        self.frames, self.has_viewer = frames, has_viewer
        self.began = 0.0, 0.0
        self.times: list[tuple[float, float]] = []
        self.handed: list[float] = []
        self.viewer: Any = None

    def compose(self) -> None:
        camera = Camera(
            self, CountCondition(self, self.frames), PeriodicCondition(self, 1 / RATE), name="camera"
        )
        work, sink = Filter(self, name="filter"), Sink(self, name="sink")
        self.add_flow(camera, work)
        if self.has_viewer:
            tensors = [
                {"name": "frame", "type": "color"},
                {"name": "box", "type": "rectangles", "color": [0, 1, 0, 1], "line_width": 3, "priority": 1},
            ]
            self.viewer = TimedViewer(self, tensors=tensors, width=WIDTH, height=HEIGHT, name="viewer")
            # Before the sink: what the viewer does is part of the pipeline's time.
            self.add_flow(work, self.viewer, {("out", "receivers")})
        self.add_flow(work, sink)


def take_pictures(url: str) -> None:
    """Take every picture of a page, as a browser does; print how many at the end."""
    import aiohttp

    async def work() -> None:
        base, _, query = url.partition("/?")
        count = 0
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{base}/ws?{query}", origin=base, max_msg_size=0) as socket,
        ):
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    count += 1
                    await socket.send_str(json.dumps({"type": "shown"}))
        print(count, flush=True)

    asyncio.run(work())


def run(frames: int, has_viewer: bool) -> tuple[list[tuple[float, float]], list[float], int]:
    app = Pipeline(frames, has_viewer)
    future = app.run_async()
    client = None
    if has_viewer:
        while not getattr(app.viewer, "url", ""):
            time.sleep(0.01)
        client = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.viewer", "--client", app.viewer.url],
            stdout=subprocess.PIPE,
            text=True,
        )
    future.result()
    shown = int(client.communicate(timeout=30)[0] or 0) if client is not None else 0
    return app.times, app.handed, shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=180)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--client", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        take_pictures(options.client)
        return
    os.environ["HEADRACE_VIEW"] = "page"
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    handed: list[float] = []
    shown = 0
    for _ in range(options.rounds):
        for has_viewer in (False, True):
            times, some, count = run(options.frames, has_viewer)
            # The first second goes to the client's start.
            found[has_viewer] += times[RATE:]
            handed += some[RATE:]
            shown += count
    wall, processor = ({key: [1e3 * pair[n] for pair in found[key]] for key in found} for n in (0, 1))
    rows = [
        row("pipeline's time, ms: median", wall, statistics.median),
        row("pipeline's time, ms: least disturbed tenth", wall, tenth),
        row("its processor time, ms: median", processor, statistics.median),
        ["viewer's compute, ms: median", "", f"{1e3 * statistics.median(handed):.3f}", ""],
        [
            "pictures a second at the client",
            "",
            f"{shown / options.rounds / (options.frames / RATE):.0f}",
            "",
        ],
    ]
    share = 100 * (tenth(wall[True]) - tenth(wall[False])) / (1e3 / RATE)
    text = (
        f"# A viewer beside a pipeline: {WIDTH}×{HEIGHT} at {RATE} frames a second\n\n"
        + report.table(["each frame", "without", "with", "change"], rows)
        + f"\n\nThe change of the least disturbed tenth is {share:+.1f} % of the time between two frames.\n\n"
        + f"{report.circumstances(common.machine())}; load {os.getloadavg()[0]:.1f} when it ended"
    )
    report.publish("viewer", text)


def tenth(values: list[float]) -> float:
    """Return the value that a tenth of all is below: what other programs on the machine disturb least."""
    return sorted(values)[len(values) // 10]


def row(name: str, values: dict[bool, list[float]], figure: Callable[[list[float]], float]) -> list[str]:
    without, with_viewer = figure(values[False]), figure(values[True])
    return [name, f"{without:.2f}", f"{with_viewer:.2f}", f"{100 * (with_viewer / without - 1):+.1f} %"]


if __name__ == "__main__":
    main()
