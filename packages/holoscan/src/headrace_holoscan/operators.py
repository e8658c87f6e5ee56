"""holoscan.operators: the ready operators. Each is made when it is first used."""

from __future__ import annotations

import sys
from typing import Any

from headrace import operators as headrace
from headrace_holoscan.absent import absent
from headrace_holoscan.core.operator import Operator, adopt
from headrace_holoscan.signatures import taking

# The arguments after the fragment and its conditions and resources; None where any are taken.
_READY = (
    *("InferenceProcessorOp", "PingTensorRxOp", "PingTensorTxOp"),
    *("VideoStreamRecorderOp", "VideoStreamReplayerOp"),
)
_HERE: dict[str, str | None] = {
    "BayerDemosaicOp": "pool, cuda_stream_pool=None, in_tensor_name='', out_tensor_name='', interpolation_mode=0, "
    "bayer_grid_pos=2, generate_alpha=False, alpha_value=255, name='bayer_demosaic'",
    "FormatConverterOp": "pool, out_dtype, in_dtype='', in_tensor_name='', out_tensor_name='', scale_min=0.0, "
    "scale_max=1.0, alpha_value=255, resize_height=0, resize_width=0, resize_mode=0, out_channel_order=[], "
    "cuda_stream_pool=None, name='format_converter'",
    "HolovizOp": "allocator=None, receivers=(), tensors=(), color_lut=(), window_title='Holoviz', "
    "display_name='DP-0', width=1920, height=1080, framerate=60, use_exclusive_display=False, fullscreen=False, "
    "headless=False, framebuffer_srgb=False, vsync=False, display_color_space=AUTO, "
    "enable_render_buffer_input=False, enable_render_buffer_output=False, enable_depth_buffer_input=False, "
    "enable_depth_buffer_output=False, enable_camera_pose_output=False, "
    "camera_pose_output_type='projection_matrix', camera_eye=(0.0, 0.0, 1.0), camera_look_at=(0.0, 0.0, 0.0), "
    "camera_up=(0.0, 1.0, 0.0), key_callback=None, unicode_char_callback=None, mouse_button_callback=None, "
    "scroll_callback=None, cursor_pos_callback=None, framebuffer_size_callback=None, window_size_callback=None, "
    "window_close_callback=None, interrupt_app_on_window_close=False, font_path='', cuda_stream_pool=None, "
    "window_close_condition=None, name='holoviz_op'",
    "InferenceOp": "backend, allocator, inference_map, model_path_map, pre_processor_map, device_map={}, "
    "dla_core_map={}, temporal_map={}, activation_map={}, backend_map={}, in_tensor_names=[], out_tensor_names=[], "
    "trt_opt_profile={}, infer_on_cpu=False, parallel_inference=True, input_on_cuda=True, output_on_cuda=True, "
    "transmit_on_cuda=True, dynamic_input_dims=False, enable_fp16=False, enable_cuda_graphs=True, dla_core=-1, "
    "dla_gpu_fallback=True, is_engine_path=False, cuda_stream_pool=None, name='inference'",
    "InferenceProcessorOp": "allocator, process_operations={}, processed_map={}, in_tensor_names=[], "
    "out_tensor_names=[], custom_kernels={}, input_on_cuda=False, output_on_cuda=False, transmit_on_cuda=False, "
    "disable_transmitter=False, cuda_stream_pool=None, config_path='', name='postprocessor'",
    "PingRxOp": None,
    "PingTensorRxOp": "receive_as_tensormap=True, name='ping_tensor_rx'",
    "PingTensorTxOp": "allocator=None, storage_type='system', batch_size=None, rows=32, columns=64, channels=None, "
    "dtype='uint8_t', tensor_name='tensor', cuda_stream_pool=None, async_device_allocation=False, "
    "name='ping_tensor_tx'",
    "PingTxOp": None,
    "SegmentationPostprocessorOp": "allocator, in_tensor_name='', network_output_type='softmax', "
    "data_format='hwc', cuda_stream_pool=None, name='segmentation_postprocessor'",
    "V4L2VideoCaptureOp": "allocator=None, device='/dev/video0', width=0, height=0, frame_rate=0.0, num_buffers=4, "
    "pixel_format='auto', pass_through=False, name='v4l2_video_capture', exposure_time=None, gain=None",
    "VideoStreamRecorderOp": "directory, basename, flush_on_tick=False, name='video_stream_recorder'",
    "VideoStreamReplayerOp": "directory, basename, batch_size=1, ignore_corrupted_entities=True, frame_rate=0.0, "
    "realtime=True, repeat=False, count=0, allocator=None, entity_serializer=None, name='video_stream_replayer'",
}
_TEST = "it sends C++ values to test the SDK itself; write the operator in Python"
_NOT_HERE = {
    "DataTypeRxTestOp": _TEST,
    "DataTypeTxTestOp": _TEST,
    "GXFCodeletOp": "it runs a compiled GXF codelet; use the ready operator of that kind, or write one in Python",
    "PoseTreeManagerLookupOp": _TEST,
    "RawImageProcessorOp": "it unpacks the raw frames of one family of cameras with compiled code; unpack them in "
    "an operator of your own, in front of BayerDemosaicOp",
}
_OPERATORS = ("GXFCodeletOp", "RawImageProcessorOp", *_HERE)
SUBMODULES = (
    *("bayer_demosaic", "format_converter", "gxf_codelet", "holoviz", "inference", "inference_processor"),
    *("ping_rx", "ping_tensor_rx", "ping_tensor_tx", "ping_tx", "raw_image_processor"),
    *("segmentation_postprocessor", "v4l2_video_capture", "video_stream_recorder", "video_stream_replayer"),
    *("test_ops", "v4l2_camera_passthrough"),
)
__all__ = [*_OPERATORS, *SUBMODULES[:-2]]


class V4L2CameraPassthroughOp(Operator):
    """Passes on the frames of a camera; frames are tensors here, which any operator passes on."""

    def __init__(
        self, fragment: Any, *args: Any, name: str = "v4l2_camera_passthrough", **kwargs: Any
    ) -> None:
        super().__init__(fragment, *args, name=name, **kwargs)

    def setup(self, spec: Any) -> None:
        """Declare the ports."""
        spec.input("input")
        spec.output("output")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Pass on a frame."""
        op_output.emit(op_input.receive("input"), "output")


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in SUBMODULES:
        return sys.modules[__name__]
    if name == "Pose3D":
        from headrace_holoscan.holoviz import Pose3D

        return Pose3D
    if name == "V4L2CameraPassthroughOp":
        return V4L2CameraPassthroughOp
    if name.startswith("_holoviz_str_to_"):
        from headrace_holoscan.holoviz import table

        if (found := table(name)) is not None:
            return found
    if name not in _HERE and name not in _NOT_HERE:
        raise AttributeError(f"module 'holoscan.operators' has no attribute {name!r}")
    found = globals()[name] = absent(name, _NOT_HERE[name]) if name in _NOT_HERE else _adopted(name)
    return found


def _adopted(name: str) -> Any:
    """Return an operator of headrace that takes what the SDK's takes."""
    from headrace_holoscan import ready

    theirs, arguments = getattr(ready if name in _READY else headrace, name), _HERE[name]
    # One that the SDK has in Python, too, ignores what it does not declare.
    if name == "InferenceOp":
        theirs = _with_activation(theirs)
    elif name == "HolovizOp":
        from headrace_holoscan.holoviz import HolovizOp as theirs
    cls = adopt(theirs, is_ready=arguments is not None)
    names = {"AUTO": theirs.ColorSpace.AUTO} if name == "HolovizOp" else {}
    if arguments is None:
        return cls
    check = _leave_out_none if name == "InferenceOp" else None
    return taking(f"fragment, *args, {arguments}", check=check, **names)(cls)


def _leave_out_none(arguments: dict[str, Any]) -> None:
    """Let None be no map, and leave models out that a map gives None."""
    for name in arguments:
        if name.endswith("_map") and name != "model_path_map":
            given = arguments[name] or {}
            arguments[name] = {model: value for model, value in given.items() if value is not None}


def _with_activation(theirs: Any) -> Any:
    class ActivationSpec(theirs.ActivationSpec):  # type: ignore[misc]
        """Whether a model runs from now on."""

        def model(self) -> str:
            """Return the name of the model."""
            return str(self.model_name)

        def is_active(self) -> bool:
            """Return whether it runs."""
            return bool(self.active)

        def set_active(self, active: bool = True) -> None:
            """Let it run, or not."""
            self.active = active

    from headrace_holoscan.torch_formats import format_beside

    members = {
        "__doc__": theirs.__doc__,
        "ActivationSpec": ActivationSpec,
        "sends_zeros_first": True,
        "torch_format": staticmethod(format_beside),
    }
    return type(theirs.__name__, (theirs,), members)
