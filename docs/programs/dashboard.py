"""A pipeline to look at: an endoscope's camera beside a control loop, each on a slice of a simulated GPU.

python docs/programs/dashboard.py                      # serves its page until Ctrl-C
python docs/programs/dashboard.py --picture page.png   # takes a picture of the page, for the documentation
"""

from __future__ import annotations

import argparse
import logging
import shutil
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from headrace import (
    Application,
    CudaGreenContext,
    CudaGreenContextPool,
    EventBasedScheduler,
    IOSpec,
    Operator,
    OperatorSpec,
    PeriodicCondition,
    declared,
    gpu,
    parameter,
)
from headrace.gpu import sim
from headrace.observe import Dashboard

log = logging.getLogger("endoscope")


@declared
class Stage(Operator):
    """Receives a frame, works on it on its stream, and emits it."""

    cost: float = 1e-3
    strength: float = parameter(
        default=1.0, live=True, minimum=0.1, maximum=3.0, headline="How much work a frame is"
    )

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        work(stream, self.cost * self.strength)
        op_output.emit(frame, "out")


@declared
class Detect(Stage):
    mode: str = parameter(default="polyps", live=True, choices=["polyps", "tools", "both"])
    is_overlaid: bool = parameter(default=True, live=True)

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)
        self.number += 1
        if self.number % 150 == 1:
            log.warning("%s: contour lost for 3 frames, kept the last one", self.mode)


class Camera(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("camera")
        op_output.set_cuda_stream(stream, "out")
        frame = gpu.Device(0).allocate(1 << 20, stream=stream.stream)
        work(stream, 0.4e-3)
        op_output.emit(frame, "out")


@declared
class Last(Operator):
    cost: float = 1e-3

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in", policy=IOSpec.QueuePolicy.POP)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        work(op_input.receive_cuda_stream("in"), self.cost)


class Recorder(Operator):
    """Compresses frames on the host, slower than they come: it is saturated, and its queue drops some."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in", policy=IOSpec.QueuePolicy.POP)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        time.sleep(0.045)


class Control(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("control")
        op_output.set_cuda_stream(stream, "out")
        work(stream, 0.3e-3)
        op_output.emit(gpu.Device(0).allocate(64, stream=stream.stream), "out")


class Endoscope(Application):
    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=3))
        pool = CudaGreenContextPool(self, 0, sms_per_partition={"vision": 80, "detection": 32, "control": 8})
        vision, detection, control = (CudaGreenContext(self, pool, name) for name in pool.names)
        camera = Camera(self, PeriodicCondition(self, "30Hz"), vision, name="camera")
        denoise = Stage(self, vision, name="denoise", cost=3e-3)
        detect = Detect(self, detection, name="detect", cost=5e-3)
        overlay = Stage(self, vision, name="overlay", cost=1e-3)
        loop = Control(self, PeriodicCondition(self, "100Hz"), control, name="control loop")
        self.add_flow(camera, denoise)
        self.add_flow(denoise, detect)
        self.add_flow(detect, overlay)
        self.add_flow(overlay, Last(self, vision, name="display", cost=0.5e-3))
        self.add_flow(overlay, Recorder(self, name="recorder"))
        self.add_flow(loop, Last(self, control, name="motor", cost=0.2e-3))


def work(stream: Any, seconds: float) -> None:
    """Occupy the SMs of a stream for some time."""
    sim.launch(stream.stream, sim.LaunchConfig(grid=8, block=256), sim.Kernel("work", seconds))


def take_picture(url: str, target: Path) -> None:
    """Open the page in Chromium, wait until it has something to show, and write a picture of it."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 940})
        page.goto(url)
        page.wait_for_timeout(8_000)
        page.screenshot(path=str(target))
        browser.close()
    with Image.open(target) as picture:
        few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(target, optimize=True)  # a table of colours: a third of the size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write a picture of the page, and end")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    with sim.Machine("h200", time="real"):
        app = Endoscope()
        app.expect("camera->display", p99="30ms")
        app.expect("camera->recorder", p95="150ms")
        if options.picture is None:
            Dashboard(app)
            app.run()
            return
        urls: SimpleQueue[str] = SimpleQueue()
        Dashboard(app, announce=urls.put)
        future = app.run_async()
        future.add_done_callback(lambda done: urls.put(""))  # where the run could not begin
        url = urls.get()
        try:
            if url:
                take_picture(url, options.picture)
        finally:
            app.stop_execution()
            future.result()


if __name__ == "__main__":
    main()
