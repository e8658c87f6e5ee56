"""Two cameras at 30 and 50 frames a second: pairs within 10 ms; the other frames are dropped and counted.

    $ headrace run examples/two_cameras.py

Time is virtual, so the run takes no time and is always the same.
"""

from __future__ import annotations

from headrace import Application, GreedyScheduler, ManualClock, PeriodicCondition, aligned, op


@op
def camera(*, frames, context, metadata):
    for number in range(frames):
        context.acq_timestamp = context.timestamp
        metadata["frame"] = number
        yield f"frame {number}"


@op(join=aligned("10ms"))
def pair(left, right, *, context):
    numbers = context.metadata["left"]["frame"], context.metadata["right"]["frame"]
    print(f"{context.acq_timestamp // 1_000_000:3} ms: frames {numbers[0]} and {numbers[1]}")


class TwoCameras(Application):
    def compose(self):
        self.scheduler(GreedyScheduler(self, clock=ManualClock(self)))
        left = camera(self, PeriodicCondition(self, "30Hz"), name="left", frames=10)
        right = camera(self, PeriodicCondition(self, "50Hz"), name="right", frames=15)
        pairs = pair(self)
        self.add_flow(left, pairs, {("out", "left")})
        self.add_flow(right, pairs, {("out", "right")})


if __name__ == "__main__":
    app = TwoCameras()
    app.run()
    print(app.progress().drop_reasons["pair.right"])
