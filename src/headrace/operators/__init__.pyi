from headrace.operators.bayer_demosaic import BayerDemosaicOp as BayerDemosaicOp
from headrace.operators.camera_sim import CameraSimOp as CameraSimOp
from headrace.operators.feed import FeedOp as FeedOp
from headrace.operators.format_converter import FormatConverterOp as FormatConverterOp
from headrace.operators.holoviz import HolovizOp as HolovizOp
from headrace.operators.inference import InferenceOp as InferenceOp
from headrace.operators.ping import PingRxOp as PingRxOp
from headrace.operators.ping import PingTxOp as PingTxOp
from headrace.operators.ping import ProbeOp as ProbeOp
from headrace.operators.results import ResultsOp as ResultsOp
from headrace.operators.segmentation_postprocessor import (
    SegmentationPostprocessorOp as SegmentationPostprocessorOp,
)
from headrace.operators.tensor_operator import split_batch as split_batch
from headrace.operators.v4l2_video_capture import V4L2VideoCaptureOp as V4L2VideoCaptureOp
from headrace.operators.video_files import VideoReaderOp as VideoReaderOp
from headrace.operators.video_files import VideoWriterOp as VideoWriterOp
