"""Programs in the shape of applications, on made-up data: frames in, a picture or numbers out."""

import os

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.operators import (
    GXFCodeletOp,
    SegmentationPostprocessorOp,
    VideoStreamRecorderOp,
    VideoStreamReplayerOp,
)
from holoscan.resources import (
    BlockMemoryPool,
    CudaStreamPool,
    GXFComponentResource,
    MemoryStorageType,
    RMMAllocator,
    UnboundedAllocator,
)


class FrameOp(Operator):
    """Made-up video."""

    def __init__(self, fragment, *args, shape=(4, 6, 3), tensor_name="", **kwargs):
        self.shape = shape
        self.tensor_name = tensor_name
        self.frame = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("output")

    def compute(self, op_input, op_output, context):
        self.frame += 1
        picture = np.full(self.shape, self.frame, dtype=np.uint8)
        op_output.emit({self.tensor_name: picture}, "output")


class ShapeOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        message = op_input.receive("in")
        for name, tensor in sorted(message.items()):
            print(repr(name), list(tensor.shape))


def _run(compose):
    class App(Application):
        pass

    App.compose = compose
    App().run()


def _record(frames=3):
    def compose(app):
        recorder = VideoStreamRecorderOp(app, name="recorder", directory=".", basename="clip")
        app.add_flow(FrameOp(app, CountCondition(app, frames), name="source"), recorder)

    _run(compose)


def record_and_replay():
    class SumOp(ShapeOp):
        def compute(self, op_input, op_output, context):
            (tensor,) = op_input.receive("in").values()
            print(np.asarray(tensor).shape, int(np.asarray(tensor).sum()))

    def compose(app):
        replayer = VideoStreamReplayerOp(
            app,
            name="replayer",
            directory=".",
            basename="clip",
            frame_rate=0,
            repeat=False,
            realtime=False,
            count=0,
        )
        app.add_flow(replayer, SumOp(app, name="sum"))

    _record()
    print(sorted(name for name in os.listdir(".")))
    _run(compose)


def a_codelet_has_no_place():
    def compose(app):
        try:
            GXFCodeletOp(app, "nvidia::gxf::PingTx", name="tx")
            GXFComponentResource(app, "nvidia::gxf::DoubleBufferReceiver", name="rx")
            print("made")
        except NotImplementedError:
            print("NotImplementedError")

    class App(Application):
        pass

    App.compose = compose
    App().run()


def extensions_have_no_place():
    from holoscan.gxf import load_extensions

    def compose(app):
        try:
            load_extensions(app.executor.context_uint64, ["libgxf_missing.so"])
            print("loaded")
        except Exception as error:
            print(type(error).__name__)

    _run(compose)


def frames_through_a_format_converter():
    from holoscan.operators import FormatConverterOp

    def compose(app):
        pool = BlockMemoryPool(app, MemoryStorageType.DEVICE, 4 * 6 * 4 * 4, 2, name="pool")
        convert = FormatConverterOp(
            app,
            name="convert",
            pool=pool,
            in_dtype="rgb888",
            out_dtype="float32",
            resize_width=3,
            resize_height=2,
        )
        app.add_flow(
            FrameOp(app, CountCondition(app, 2), name="source"), convert, {("output", "source_video")}
        )
        app.add_flow(convert, ShapeOp(app, name="shape"))

    _run(compose)


def frames_into_a_window():
    from holoscan.operators import HolovizOp

    def compose(app):
        holoviz = HolovizOp(
            app,
            name="holoviz",
            width=64,
            height=48,
            headless=True,
            tensors=[{"name": "video", "type": "color", "opacity": 0.8, "priority": 0}],
            allocator=UnboundedAllocator(app, name="pool"),
            cuda_stream_pool=CudaStreamPool(app, name="streams"),
        )
        source = FrameOp(app, CountCondition(app, 2), tensor_name="video", name="source")
        app.add_flow(source, holoviz, {("output", "receivers")})

    _run(compose)
    print("ended")


def segmentation_of_scores():
    class ScoreOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.output("out")

        def compute(self, op_input, op_output, context):
            scores = np.zeros((1, 4, 4, 2), np.float32)
            scores[0, :2, :, 1] = 1
            op_output.emit({"inference_output_tensor": scores}, "out")

    def compose(app):
        post = SegmentationPostprocessorOp(
            app,
            name="post",
            allocator=UnboundedAllocator(app, name="allocator"),
            in_tensor_name="inference_output_tensor",
            network_output_type="softmax",
            data_format="nhwc",
        )
        app.add_flow(ScoreOp(app, CountCondition(app, 1), name="scores"), post, {("out", "")})
        app.add_flow(post, ShapeOp(app, name="shape"))

    _run(compose)


def a_model_that_is_missing():
    from holoscan.operators import InferenceOp

    def compose(app):
        inference = InferenceOp(
            app,
            name="inference",
            backend="onnxrt",
            allocator=RMMAllocator(app, name="rmm"),
            model_path_map={"seg": "missing.onnx"},
            pre_processor_map={"seg": ["source_video"]},
            inference_map={"seg": ["out"]},
            in_tensor_names=["source_video"],
            out_tensor_names=["out"],
        )
        app.add_flow(FrameOp(app, CountCondition(app, 1), name="source"), inference, {("", "receivers")})

    _run(compose)


def an_inference_specification():
    from holoscan.operators import InferenceOp

    spec = InferenceOp.ActivationSpec("seg", True)
    print(spec.model(), spec.is_active())
    spec.set_active(False)
    print(spec.is_active())


def the_largest_score_of_a_model():
    from holoscan.operators import InferenceProcessorOp

    class ScoreOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.output("out")

        def compute(self, op_input, op_output, context):
            scores = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
            op_output.emit({"scores": scores}, "out")

    def compose(app):
        processor = InferenceProcessorOp(
            app,
            name="processor",
            allocator=UnboundedAllocator(app, name="allocator"),
            process_operations={"scores": ["max_per_channel_scaled"]},
            processed_map={"scores": ["scaled"]},
            in_tensor_names=["scores"],
            out_tensor_names=["scaled"],
        )
        source = ScoreOp(app, CountCondition(app, 1), name="source")
        app.add_flow(source, processor, {("", "receivers")})
        app.add_flow(processor, ShapeOp(app, name="shape"), {("transmitter", "in")})

    _run(compose)


def raw_frames_of_a_camera():
    from holoscan.operators import BayerDemosaicOp

    def compose(app):
        demosaic = BayerDemosaicOp(
            app,
            name="demosaic",
            pool=BlockMemoryPool(app, MemoryStorageType.DEVICE, 4 * 6 * 4, 2, name="pool"),
            cuda_stream_pool=CudaStreamPool(app, name="streams"),
            generate_alpha=True,
            bayer_grid_pos=2,
            interpolation_mode=0,
        )
        source = FrameOp(app, CountCondition(app, 2), shape=(4, 6, 1), name="source")
        app.add_flow(source, demosaic, {("output", "receiver")})
        app.add_flow(demosaic, ShapeOp(app, name="shape"))

    _run(compose)


def a_camera_that_is_not_there():
    from holoscan.operators import V4L2VideoCaptureOp

    def compose(app):
        camera = V4L2VideoCaptureOp(
            app,
            CountCondition(app, 2),
            name="camera",
            allocator=UnboundedAllocator(app, name="pool"),
            device="/dev/video99",
            width=64,
            height=48,
        )
        app.add_flow(camera, ShapeOp(app, name="shape"), {("signal", "in")})

    _run(compose)


def a_stream_condition_and_pool():
    from holoscan.conditions import CudaStreamCondition

    class StreamOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")

        def compute(self, op_input, op_output, context):
            op_input.receive("in")
            print(op_input.receive_cuda_stream("in", allocate=True) is not None)

    def compose(app):
        condition = CudaStreamCondition(app, receiver="in", name="stream_ready")
        pool = CudaStreamPool(app, name="stream_pool", dev_id=0, max_size=4)
        sink = StreamOp(app, condition, pool, name="sink")
        app.add_flow(FrameOp(app, CountCondition(app, 2), name="source"), sink, {("output", "in")})

    _run(compose)


def a_green_context_and_its_streams():
    from holoscan.resources import CudaGreenContext, CudaGreenContextPool

    class StreamOp(Operator):
        def compute(self, op_input, op_output, context):
            print(context.allocate_cuda_stream("work") is not None)

    def compose(app):
        partitions = CudaGreenContextPool(
            app, dev_id=0, flags=0, num_partitions=2, sms_per_partition=[8, 8], name="partitions"
        )
        green = CudaGreenContext(app, cuda_green_context_pool=partitions, index=0, name="green")
        pool = CudaStreamPool(app, dev_id=0, cuda_green_context=green, name="stream_pool")
        app.add_operator(StreamOp(app, CountCondition(app, 1), partitions, green, pool, name="op"))

    _run(compose)
