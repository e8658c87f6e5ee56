"""Two networks on one clip in one operator, and what they found: points and a label."""

import os
from argparse import ArgumentParser

from holoscan.core import Application
from holoscan.operators import (
    FormatConverterOp,
    HolovizOp,
    InferenceOp,
    InferenceProcessorOp,
    VideoStreamReplayerOp,
)
from holoscan.resources import CudaStreamPool, RMMAllocator, UnboundedAllocator


class MultiAIApp(Application):
    def __init__(self, data):
        super().__init__()
        self.name = "Multi AI App"
        if data == "none":
            data = os.environ.get("HOLOHUB_DATA_PATH", "../data")
        self.sample_data_path = data
        self.model_path_map = {
            "points": os.path.join(data, "models", "peaks.onnx"),
            "view": os.path.join(data, "models", "peaks.onnx"),
        }

    def compose(self):
        pool = UnboundedAllocator(self, name="pool")
        streams = CudaStreamPool(
            self, name="cuda_stream", dev_id=0, stream_flags=0, reserved_size=1, max_size=5
        )
        source = VideoStreamReplayerOp(
            self,
            name="replayer",
            directory=os.path.join(self.sample_data_path, "ultrasound"),
            allocator=RMMAllocator(self, name="video_replayer_allocator"),
            **self.kwargs("replayer"),
        )
        converters = [
            FormatConverterOp(
                self, name=f"{name}_preprocessor", pool=pool, **self.kwargs(f"{name}_preprocessor")
            )
            for name in ("points", "view")
        ]
        inference_kwargs = self.kwargs("multiai_inference")
        inference_kwargs["model_path_map"] = self.model_path_map
        device_map = {}
        if "device_map" in inference_kwargs:
            device_map = inference_kwargs["device_map"]
            inference_kwargs["device_map"] = {key: str(value) for key, value in device_map.items()}
        inference = InferenceOp(
            self, name="multiai_inference", allocator=pool, cuda_stream_pool=streams, **inference_kwargs
        )
        postprocessor = InferenceProcessorOp(
            self,
            allocator=pool,
            disable_transmitter=False,
            cuda_stream_pool=streams,
            **self.kwargs("multiai_postprocessor"),
        )
        holoviz = HolovizOp(
            self, name="holoviz", allocator=pool, cuda_stream_pool=streams, **self.kwargs("holoviz")
        )

        self.add_flow(source, holoviz, {("", "receivers")})
        for converter in converters:
            self.add_flow(source, converter)
            self.add_flow(converter, inference, {("", "receivers")})
        self.add_flow(inference, postprocessor, {("transmitter", "receivers")})
        self.add_flow(postprocessor, holoviz, {("transmitter", "receivers")})


if __name__ == "__main__":
    parser = ArgumentParser(description="Two networks.")
    parser.add_argument("-c", "--config", default="none")
    parser.add_argument("-d", "--data", default="none")
    args = parser.parse_args()
    config_file = args.config
    if config_file == "none":
        config_file = os.path.join(os.path.dirname(__file__), "multiai.yaml")
    app = MultiAIApp(data=args.data)
    app.config(config_file)
    app.run()
