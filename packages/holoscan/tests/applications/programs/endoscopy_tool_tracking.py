"""A surgical video with what a tracker found: a mask, crosses and labels; the picture may be recorded."""

import os
from argparse import ArgumentParser

import cupy as cp
import numpy as np
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.operators import FormatConverterOp, HolovizOp, VideoStreamRecorderOp, VideoStreamReplayerOp
from holoscan.resources import BlockMemoryPool, CudaStreamPool, MemoryStorageType, UnboundedAllocator


class ToolFinderOp(Operator):
    """Takes the place of the compiled inference operator: it finds the bright square."""

    def __init__(self, fragment, *args, label_count=2, **kwargs):
        self.label_count = label_count
        self.seen = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")
        spec.param("in_tensor_name", "source_video")
        spec.param("min_prob", 0.5)

    def compute(self, op_input, op_output, context):
        message = op_input.receive("in")
        image = cp.asnumpy(cp.asarray(message[self.in_tensor_name]))
        bright = image.mean(axis=2) > 0.9
        rows, columns = np.nonzero(bright)
        height, width = bright.shape
        centre = [(columns.mean() + 0.5) / width, (rows.mean() + 0.5) / height]
        # One found, the other is outside of the picture.
        coords = np.array([centre] + [[-1, -1]] * (self.label_count - 1), np.float32)
        mask = np.zeros((height, width, 4), np.uint8)
        mask[bright] = [0, 255, 0, 255]
        self.seen += 1
        print(f"frame {self.seen}: tool at {centre[0]:.3f}, {centre[1]:.3f}")
        op_output.emit({"scaled_coords": coords, "mask": mask}, "out")


class EndoscopyApp(Application):
    def __init__(self, data, record_type=None, source="replayer"):
        super().__init__()
        self.name = "Endoscopy App"
        if record_type is not None and record_type not in ("input", "visualizer"):
            raise ValueError("record_type must be either ('input' or 'visualizer')")
        self.record_type = record_type
        self.source = source
        if data == "none":
            data = os.path.join(os.environ.get("HOLOHUB_DATA_PATH", "../data"), "endoscopy")
        self.sample_data_path = data

    def compose(self):
        record_type = self.record_type
        width, height = 32, 24
        video_dir = self.sample_data_path
        if not os.path.exists(video_dir):
            raise ValueError(f"Could not find video data: {video_dir=}")
        source = VideoStreamReplayerOp(self, name="replayer", directory=video_dir, **self.kwargs("replayer"))
        source_pool_kwargs = {
            "storage_type": MemoryStorageType.DEVICE,
            "block_size": width * height * 4 * 4,
            "num_blocks": 3,
        }
        if record_type is not None:
            if record_type == "visualizer":
                recorder_format_converter = FormatConverterOp(
                    self,
                    name="recorder_format_converter",
                    pool=BlockMemoryPool(self, name="pool", **source_pool_kwargs),
                    **self.kwargs("recorder_format_converter"),
                )
            recorder = VideoStreamRecorderOp(name="recorder", fragment=self, **self.kwargs("recorder"))

        cuda_stream_pool = CudaStreamPool(
            self,
            name="cuda_stream",
            dev_id=0,
            stream_flags=0,
            stream_priority=0,
            reserved_size=1,
            max_size=5,
        )
        format_converter = FormatConverterOp(
            self,
            name="format_converter",
            pool=BlockMemoryPool(self, name="pool", **source_pool_kwargs),
            cuda_stream_pool=cuda_stream_pool,
            **self.kwargs("format_converter_replayer"),
        )
        tool_finder = ToolFinderOp(
            self,
            name="tool_finder",
            pool=UnboundedAllocator(self, name="host_allocator"),
            cuda_stream_pool=cuda_stream_pool,
            **self.kwargs("tool_finder"),
        )
        visualizer = HolovizOp(
            self,
            name="holoviz",
            width=width,
            height=height,
            enable_render_buffer_input=False,
            enable_render_buffer_output=record_type == "visualizer",
            allocator=BlockMemoryPool(self, name="allocator", **source_pool_kwargs)
            if record_type == "visualizer"
            else None,
            cuda_stream_pool=cuda_stream_pool,
            **self.kwargs("holoviz"),
        )
        self.add_flow(source, format_converter, {("output", "source_video")})
        self.add_flow(format_converter, tool_finder)
        self.add_flow(tool_finder, visualizer, {("out", "receivers")})
        self.add_flow(source, visualizer, {("output", "receivers")})
        if record_type == "input":
            self.add_flow(source, recorder)
        elif record_type == "visualizer":
            self.add_flow(visualizer, recorder_format_converter, {("render_buffer_output", "source_video")})
            self.add_flow(recorder_format_converter, recorder)


if __name__ == "__main__":
    parser = ArgumentParser(description="Endoscopy tool tracking demo application.")
    parser.add_argument("-r", "--record_type", choices=["none", "input", "visualizer"], default="none")
    parser.add_argument("-s", "--source", choices=["replayer", "aja"], default="replayer")
    parser.add_argument("-c", "--config", default="none")
    parser.add_argument("-d", "--data", default="none")
    args = parser.parse_args()
    config_file = args.config
    if config_file == "none":
        config_file = os.path.join(os.path.dirname(__file__), "endoscopy_tool_tracking.yaml")
    app = EndoscopyApp(
        record_type=None if args.record_type == "none" else args.record_type,
        source=args.source,
        data=args.data,
    )
    app.config(config_file)
    app.run()
