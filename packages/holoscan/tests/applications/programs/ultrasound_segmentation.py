"""A clip, and the classes that a network gives its pixels, drawn over it."""

import os
from argparse import ArgumentParser

from holoscan.core import Application
from holoscan.logger import LogLevel, set_log_level
from holoscan.operators import (
    FormatConverterOp,
    HolovizOp,
    InferenceOp,
    SegmentationPostprocessorOp,
    VideoStreamReplayerOp,
)
from holoscan.resources import BlockMemoryPool, CudaStreamPool, MemoryStorageType


class UltrasoundApp(Application):
    def __init__(self, data, source="replayer"):
        super().__init__()
        self.name = "Ultrasound App"
        self.source = source
        if data == "none":
            data = os.environ.get("HOLOHUB_DATA_PATH", "../data")
        self.sample_data_path = data
        self.model_path_map = {"ultrasound_seg": os.path.join(data, "models", "segmentation.onnx")}

    def compose(self):
        n_channels, bpp, width, height = 4, 4, 32, 24
        cuda_stream_pool = CudaStreamPool(
            self,
            name="cuda_stream",
            dev_id=0,
            stream_flags=0,
            stream_priority=0,
            reserved_size=1,
            max_size=5,
        )
        source = VideoStreamReplayerOp(
            self,
            name="replayer",
            directory=os.path.join(self.sample_data_path, "ultrasound"),
            **self.kwargs("replayer"),
        )
        segmentation_preprocessor = FormatConverterOp(
            self,
            name="segmentation_preprocessor",
            pool=BlockMemoryPool(
                self,
                storage_type=MemoryStorageType.DEVICE,
                block_size=width * height * n_channels * bpp,
                num_blocks=2,
            ),
            cuda_stream_pool=cuda_stream_pool,
            **self.kwargs("segmentation_preprocessor"),
        )
        segmentation_inference = InferenceOp(
            self,
            name="segmentation_inference_holoinfer",
            allocator=BlockMemoryPool(
                self,
                storage_type=MemoryStorageType.DEVICE,
                block_size=width * height * 2 * bpp,
                num_blocks=4,
            ),
            model_path_map=self.model_path_map,
            cuda_stream_pool=cuda_stream_pool,
            **self.kwargs("segmentation_inference"),
        )
        segmentation_postprocessor = SegmentationPostprocessorOp(
            self,
            name="segmentation_postprocessor",
            allocator=BlockMemoryPool(
                self, storage_type=MemoryStorageType.DEVICE, block_size=width * height, num_blocks=2
            ),
            **self.kwargs("segmentation_postprocessor"),
        )
        segmentation_visualizer = HolovizOp(
            self,
            name="segmentation_visualizer",
            cuda_stream_pool=cuda_stream_pool,
            **self.kwargs("segmentation_visualizer"),
        )
        self.add_flow(source, segmentation_visualizer, {("", "receivers")})
        self.add_flow(source, segmentation_preprocessor)
        self.add_flow(segmentation_preprocessor, segmentation_inference, {("", "receivers")})
        self.add_flow(segmentation_inference, segmentation_postprocessor, {("transmitter", "")})
        self.add_flow(segmentation_postprocessor, segmentation_visualizer, {("", "receivers")})


if __name__ == "__main__":
    set_log_level(LogLevel.WARN)
    parser = ArgumentParser(description="Ultrasound segmentation demo application.")
    parser.add_argument("-s", "--source", choices=["replayer", "aja"], default="replayer")
    parser.add_argument("-c", "--config", default="none")
    parser.add_argument("-d", "--data", default="none")
    args = parser.parse_args()
    config_file = args.config
    if config_file == "none":
        config_file = os.path.join(os.path.dirname(__file__), "ultrasound_segmentation.yaml")
    app = UltrasoundApp(source=args.source, data=args.data)
    app.config(config_file)
    app.run()
