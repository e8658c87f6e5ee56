"""People in a picture: boxes, key points and the lines between them, from a network's raw output."""

import os
from argparse import ArgumentParser

import cupy as cp
import numpy as np
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.gxf import Entity
from holoscan.operators import (
    FormatConverterOp,
    HolovizOp,
    InferenceOp,
    V4L2VideoCaptureOp,
    VideoStreamReplayerOp,
)
from holoscan.resources import UnboundedAllocator

import holoscan as hs


class FormatInferenceInputOp(Operator):
    """Puts the channels first."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        in_message = op_input.receive("in")
        tensor = cp.asnumpy(cp.asarray(in_message.get("preprocessed")))
        tensor = cp.asarray(np.ascontiguousarray(np.moveaxis(tensor, 2, 0)[None]))
        out_message = Entity(context)
        out_message.add(hs.as_tensor(tensor), "preprocessed")
        op_output.emit(out_message, "out")


class PostprocessorOp(Operator):
    """Keeps the candidates with a good score and gives them the form that Holoviz draws."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outputs = ["boxes", "noses", "hips", "segments"]
        self.NOSE = slice(5, 7)
        self.HIP = slice(8, 10)

    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")
        spec.param("iou_threshold", 0.5)
        spec.param("score_threshold", 0.5)
        spec.param("image_dim", None)

    def compute(self, op_input, op_output, context):
        in_message = op_input.receive("in")
        results = cp.asarray(in_message.get("inference_output"))[0]
        results = results[:, results[4, :] > self.score_threshold]
        if results.shape[1] == 0:
            out_message = Entity(context)
            zeros = hs.as_tensor(np.zeros([1, 2, 2]).astype(np.float32))
            for output in self.outputs:
                out_message.add(zeros, output)
            op_output.emit(out_message, "out")
            return
        results = results.transpose([1, 0])
        cx, cy, w, h = results[:, 0], results[:, 1], results[:, 2], results[:, 3]
        size = cp.asarray(self.image_dim, dtype=cp.float32)
        out = {
            "boxes": cp.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], axis=-1).reshape(-1, 2),
            "noses": results[:, self.NOSE],
            "hips": results[:, self.HIP],
            "segments": cp.stack([results[:, self.NOSE], results[:, self.HIP]], axis=1).reshape(-1, 2),
        }
        print(f"{len(results)} people, nose at {cp.asnumpy(out['noses'])[0].tolist()}")
        out_message = Entity(context)
        for output in self.outputs:
            out_message.add(hs.as_tensor((out[output] / size).astype(cp.float32)), output)
        op_output.emit(out_message, "out")


class BodyPoseEstimationApp(Application):
    def __init__(self, data, source="v4l2"):
        super().__init__()
        self.name = "Body Pose Estimation App"
        self.source = source
        if data == "none":
            data = os.environ.get("HOLOHUB_DATA_PATH", "../data")
        self.sample_data_path = data

    def compose(self):
        pool = UnboundedAllocator(self, name="pool")
        if self.source == "v4l2":
            source = V4L2VideoCaptureOp(
                self, name="v4l2_source", allocator=pool, **self.kwargs("v4l2_source")
            )
            source_output = "signal"
        else:
            source = VideoStreamReplayerOp(
                self,
                name="replayer",
                directory=os.path.join(self.sample_data_path, "racerx"),
                **self.kwargs("replayer"),
            )
            source_output = "output"
        preprocessor_args = self.kwargs("preprocessor")
        preprocessor = FormatConverterOp(self, name="preprocessor", pool=pool, **preprocessor_args)
        # `pool` is nobody's parameter: the SDK ignores it.
        format_input = FormatInferenceInputOp(self, name="transpose", pool=pool)
        inference_args = self.kwargs("inference")
        inference_args["model_path_map"] = {
            "yolo_pose": os.path.join(self.sample_data_path, "models", "pose.onnx")
        }
        inference = InferenceOp(self, name="inference", allocator=pool, **inference_args)
        postprocessor_args = self.kwargs("postprocessor")
        postprocessor_args["image_dim"] = [
            preprocessor_args["resize_width"],
            preprocessor_args["resize_height"],
        ]
        postprocessor = PostprocessorOp(self, name="postprocessor", allocator=pool, **postprocessor_args)
        holoviz = HolovizOp(self, allocator=pool, name="holoviz", **self.kwargs("holoviz"))

        self.add_flow(source, holoviz, {(source_output, "receivers")})
        self.add_flow(source, preprocessor)
        self.add_flow(preprocessor, format_input)
        self.add_flow(format_input, inference, {("", "receivers")})
        self.add_flow(inference, postprocessor, {("transmitter", "in")})
        self.add_flow(postprocessor, holoviz, {("out", "receivers")})


if __name__ == "__main__":
    parser = ArgumentParser(description="Body Pose Estimation Application.")
    parser.add_argument("-s", "--source", choices=["v4l2", "replayer"], default="v4l2")
    parser.add_argument("-c", "--config", default="none")
    parser.add_argument("-d", "--data", default="none")
    args = parser.parse_args()
    config_file = args.config
    if config_file == "none":
        config_file = os.path.join(os.path.dirname(__file__), "body_pose_estimation.yaml")
    app = BodyPoseEstimationApp(args.data, args.source)
    app.config(config_file)
    app.run()
