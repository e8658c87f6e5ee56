"""Bring your own model: a clip through a network that is yours."""

import os
from argparse import ArgumentParser

from holoscan.core import Application
from holoscan.operators import (
    FormatConverterOp,
    HolovizOp,
    InferenceOp,
    SegmentationPostprocessorOp,
    VideoStreamReplayerOp,
)
from holoscan.resources import UnboundedAllocator


class BYOMApp(Application):
    def __init__(self, data):
        super().__init__()
        self.name = "BYOM App"
        if data == "none":
            data = os.environ.get("HOLOSCAN_INPUT_PATH", "../data")
        self.sample_data_path = data
        self.model_path = os.path.join(data, "models")
        self.model_path_map = {"byom_model": os.path.join(self.model_path, "identity.onnx")}
        self.video_dir = os.path.join(self.sample_data_path, "racerx")
        if not os.path.exists(self.video_dir):
            raise ValueError(f"Could not find video data: {self.video_dir=}")

    def compose(self):
        allocator = UnboundedAllocator(self, name="allocator")
        source = VideoStreamReplayerOp(
            self, name="replayer", directory=self.video_dir, **self.kwargs("replayer")
        )
        preprocessor = FormatConverterOp(
            self, name="preprocessor", pool=allocator, **self.kwargs("preprocessor")
        )
        inference = InferenceOp(
            self,
            name="inference",
            allocator=allocator,
            model_path_map=self.model_path_map,
            **self.kwargs("inference"),
        )
        postprocessor = SegmentationPostprocessorOp(
            self, name="postprocessor", allocator=allocator, **self.kwargs("postprocessor")
        )
        viz = HolovizOp(self, name="viz", **self.kwargs("viz"))

        self.add_flow(source, viz, {("output", "receivers")})
        self.add_flow(source, preprocessor, {("output", "source_video")})
        self.add_flow(preprocessor, inference, {("tensor", "receivers")})
        self.add_flow(inference, postprocessor, {("transmitter", "in_tensor")})
        self.add_flow(postprocessor, viz, {("out_tensor", "receivers")})


def main(config_file, data):
    app = BYOMApp(data=data)
    # If the --config command line argument was provided, it overrides this file.
    app.config(config_file)
    app.run()


if __name__ == "__main__":
    parser = ArgumentParser(description="BYOM demo application.")
    parser.add_argument("-d", "--data", default="none", help="the folder of the data")
    parser.add_argument("-c", "--config", default="none", help="the configuration file")
    args = parser.parse_args()
    config_file = args.config
    if config_file == "none":
        config_file = os.path.join(os.path.dirname(__file__), "byom.yaml")
    main(config_file=config_file, data=args.data)
