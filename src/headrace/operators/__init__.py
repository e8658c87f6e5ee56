"""The catalogue of operators: video, images, inference, the viewer, and tests of pipelines.

Each is imported when it is first used, so that importing this package imports no library of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.operators.bayer_demosaic import BayerDemosaicOp
    from headrace.operators.camera_sim import CameraSimOp
    from headrace.operators.format_converter import FormatConverterOp
    from headrace.operators.holoviz import HolovizOp
    from headrace.operators.inference import InferenceOp
    from headrace.operators.inference_processor import InferenceProcessorOp
    from headrace.operators.ping import PingRxOp, PingTxOp
    from headrace.operators.ping_tensor import PingTensorRxOp, PingTensorTxOp
    from headrace.operators.probe import ProbeOp
    from headrace.operators.segmentation_postprocessor import SegmentationPostprocessorOp
    from headrace.operators.v4l2_video_capture import V4L2VideoCaptureOp
    from headrace.operators.video_stream_recorder import VideoStreamRecorderOp
    from headrace.operators.video_stream_replayer import VideoStreamReplayerOp

__all__ = [
    "BayerDemosaicOp",
    "CameraSimOp",
    "FormatConverterOp",
    "HolovizOp",
    "InferenceOp",
    "InferenceProcessorOp",
    "PingRxOp",
    "PingTensorRxOp",
    "PingTensorTxOp",
    "PingTxOp",
    "ProbeOp",
    "SegmentationPostprocessorOp",
    "V4L2VideoCaptureOp",
    "VideoStreamRecorderOp",
    "VideoStreamReplayerOp",
]

_MODULES = {
    "BayerDemosaicOp": "bayer_demosaic",
    "CameraSimOp": "camera_sim",
    "FormatConverterOp": "format_converter",
    "HolovizOp": "holoviz",
    "InferenceOp": "inference",
    "InferenceProcessorOp": "inference_processor",
    "PingRxOp": "ping",
    "PingTensorRxOp": "ping_tensor",
    "PingTensorTxOp": "ping_tensor",
    "PingTxOp": "ping",
    "ProbeOp": "probe",
    "SegmentationPostprocessorOp": "segmentation_postprocessor",
    "V4L2VideoCaptureOp": "v4l2_video_capture",
    "VideoStreamRecorderOp": "video_stream_recorder",
    "VideoStreamReplayerOp": "video_stream_replayer",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
