"""A camera whose frames are segmented and shown, and a report beside it: what the page about the p99 runs."""

from __future__ import annotations

from headrace import (
    Application,
    CountCondition,
    CudaGreenContext,
    CudaGreenContextPool,
    CudaStreamPool,
    Operator,
    PeriodicCondition,
    watch,
)
from headrace.gpu import sim
from headrace.observe import TraceWriter

MS = 1e-3


class Camera(Operator):
    def setup(self, spec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        stream = context.allocate_cuda_stream("camera")
        op_output.set_cuda_stream(stream, "out")
        launch(stream, blocks=32, seconds=0.3 * MS)
        op_output.emit("frame", "out")


class Segment(Operator):
    def setup(self, spec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        frame = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), blocks=64, seconds=2 * MS)
        op_output.emit(frame, "out")


class Display(Operator):
    def setup(self, spec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), blocks=32, seconds=0.5 * MS)


class Report(Operator):
    """Measures everything that was recorded, four times a second."""

    def setup(self, spec):
        pass

    def compute(self, op_input, op_output, context):
        launch(context.allocate_cuda_stream("report"), blocks=5280, seconds=1 * MS)


class Clinic(Application):
    def compose(self):
        camera = Camera(self, PeriodicCondition(self, 10 * MS), CountCondition(self, 500), name="camera")
        segment, display = Segment(self, name="segment"), Display(self, name="display")
        report = Report(self, PeriodicCondition(self, 253 * MS), CountCondition(self, 20), name="report")
        self.add_flow(camera, segment)
        self.add_flow(segment, display)
        self.add_operator(report)
        self.place(camera, segment, display, report)

    def place(self, camera, segment, display, report):
        """Leave every operator on all SMs."""


def launch(stream, blocks, seconds):
    sim.launch(stream.stream, sim.LaunchConfig(grid=blocks, block=1024), sim.Kernel("work", seconds))


def trace(application, file):
    """Run an application on a simulated H200, in virtual time, write its trace, and return its goal."""
    with sim.Machine("h200"):
        app = application()
        watch(app, TraceWriter(file))
        goal = app.expect("camera->display", p99="5ms")
        app.run()
    return goal


class SlicedClinic(Clinic):
    def place(self, camera, segment, display, report):
        slices = CudaGreenContextPool(self, 0, sms_per_partition={"live": 32})
        live = CudaGreenContext(self, slices, "live", name="live")
        rest = CudaGreenContext(self, slices, "leftover", name="rest")
        for operator in (camera, segment, display):
            operator.add_arg(
                CudaStreamPool(self, 0, 1, cuda_green_context=live, name=f"{operator.name} streams")
            )
        report.add_arg(CudaStreamPool(self, 0, 1, cuda_green_context=rest, name="report streams"))
