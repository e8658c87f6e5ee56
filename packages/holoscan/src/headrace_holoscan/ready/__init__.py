"""The SDK's operators that headrace has no other use for: its recordings, its words for results of
networks, and its pings of tensors.
"""

from __future__ import annotations

from headrace_holoscan.ready.inference_processor import InferenceProcessorOp
from headrace_holoscan.ready.ping_tensor import PingTensorRxOp, PingTensorTxOp
from headrace_holoscan.ready.video_stream_recorder import VideoStreamRecorderOp
from headrace_holoscan.ready.video_stream_replayer import VideoStreamReplayerOp

__all__ = [
    "InferenceProcessorOp",
    "PingTensorRxOp",
    "PingTensorTxOp",
    "VideoStreamRecorderOp",
    "VideoStreamReplayerOp",
]
