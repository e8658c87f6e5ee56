"""The SDK's operators that headrace has no other use for: its recordings, and its words for results of networks."""

from __future__ import annotations

from headrace_holoscan.ready.inference_processor import InferenceProcessorOp
from headrace_holoscan.ready.video_stream_recorder import VideoStreamRecorderOp
from headrace_holoscan.ready.video_stream_replayer import VideoStreamReplayerOp

__all__ = ["InferenceProcessorOp", "VideoStreamRecorderOp", "VideoStreamReplayerOp"]
