"""A camera in a window."""

import os
from argparse import ArgumentParser

from holoscan.core import Application
from holoscan.operators import FormatConverterOp, HolovizOp, V4L2VideoCaptureOp
from holoscan.resources import RMMAllocator, UnboundedAllocator


class App(Application):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.name = "V4L2 App"

    def compose(self):
        source_args = self.kwargs("source")
        source = V4L2VideoCaptureOp(
            self, name="source", allocator=UnboundedAllocator(self, name="pool"), **source_args
        )
        converter = FormatConverterOp(
            self,
            name="converter",
            pool=RMMAllocator(self, name="rmm", **self.kwargs("rmm")),
            **self.kwargs("converter"),
        )
        visualizer = HolovizOp(self, name="visualizer", **self.kwargs("visualizer"))
        self.add_flow(source, visualizer, {("signal", "receivers")})
        self.add_flow(source, converter, {("signal", "source_video")})


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("-c", "--config", default=os.path.join(os.path.dirname(__file__), "v4l2_camera.yaml"))
    args = parser.parse_args()
    app = App()
    app.config(args.config)
    app.run()
