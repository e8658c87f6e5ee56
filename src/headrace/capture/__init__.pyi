from headrace.capture.declaration import CONTRACT as CONTRACT
from headrace.capture.declaration import MODES as MODES
from headrace.capture.declaration import CaptureError as CaptureError
from headrace.capture.declaration import CaptureRefused as CaptureRefused
from headrace.capture.declaration import Segment as Segment
from headrace.capture.declaration import SegmentOptions as SegmentOptions
