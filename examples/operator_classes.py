"""Operator classes: ports, parameters, conditions, and a scheduler with two threads."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from headrace import (
    Application,
    ConditionType,
    CountCondition,
    EventBasedScheduler,
    IOSpec,
    Operator,
    OperatorSpec,
    PeriodicCondition,
    declared,
)


class Camera(Operator):
    """Emits a numbered frame each time it runs; its conditions decide when."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("frame")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.number += 1
        op_output.emit([self.number] * 3, "frame", acq_timestamp=context.timestamp)


@declared
class Scale(Operator):
    """Multiplies each value of a frame by a factor."""

    factor: float = 1.0

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("frame")
        spec.output("scaled")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("frame")
        op_output.emit([self.factor * value for value in frame], "scaled")


class Preview(Operator):
    """Shows the newest frame; its queue holds one frame and drops the oldest."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("frame", policy=IOSpec.QueuePolicy.POP)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        print("preview", op_input.receive("frame"))


class Archive(Operator):
    """Takes frames in batches of two to four."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("frames", size=4).condition(ConditionType.MESSAGE_AVAILABLE, min_size=2)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        print("archive", op_input.receive("frames"))


class Cameras(Application):
    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        pace = PeriodicCondition(self, timedelta(milliseconds=5))
        camera = Camera(self, pace, CountCondition(self, 8), name="camera")
        scale = Scale(self, factor=0.5, name="scale")
        self.add_flow(camera, scale)
        self.add_flow(camera, Preview(self, name="preview"))
        self.add_flow(scale, Archive(self, name="archive"), {("scaled", "frames")})


if __name__ == "__main__":
    app = Cameras()
    if "--draw" in sys.argv:
        print(app.draw("mermaid"))
    else:
        app.run()
        print("dropped:", app.dropped(), "left over:", app.undelivered())
