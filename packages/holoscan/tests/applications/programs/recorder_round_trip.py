"""Records made-up frames, and replays the files."""

import os

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.operators import VideoStreamRecorderOp, VideoStreamReplayerOp


class FramesOp(Operator):
    def __init__(self, fragment, *args, **kwargs):
        self.number = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("output")

    def compute(self, op_input, op_output, context):
        op_output.emit({"video": np.full((4, 6, 3), self.number, np.uint8)}, "output")
        self.number += 1


class ShowOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("input")

    def compute(self, op_input, op_output, context):
        tensor = op_input.receive("input")["video"]
        print(
            tuple(tensor.shape),
            np.asarray(tensor).max() if tensor.device.device_type == 1 else "on the device",
        )


class RecordApp(Application):
    def compose(self):
        frames = FramesOp(self, CountCondition(self, 4), name="frames")
        recorder = VideoStreamRecorderOp(
            self, name="recorder", directory=os.getcwd(), basename="clip", flush_on_tick=False
        )
        self.add_flow(frames, recorder, {("output", "input")})


class ReplayApp(Application):
    def compose(self):
        replayer = VideoStreamReplayerOp(
            self,
            name="replayer",
            directory=os.getcwd(),
            basename="clip",
            batch_size=1,
            ignore_corrupted_entities=True,
            frame_rate=0.0,
            realtime=False,
            repeat=True,
            count=6,
        )
        self.add_flow(replayer, ShowOp(self, name="show"), {("output", "input")})


if __name__ == "__main__":
    RecordApp().run()
    print(sorted(name for name in os.listdir() if name.startswith("clip")))
    ReplayApp().run()
