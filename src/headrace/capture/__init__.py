"""Captured segments: connected operators whose frames are replayed as one CUDA graph.

`Fragment.capture` declares a segment. It stands above the runtime, which knows groups of operators that are
scheduled as one (`GroupPlan`), and not what runs them. A frame's way: `segment` gets its messages, `cache` finds
its graph, `replay` orders streams and emits, `graph` launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.capture.declaration import (
        CONTRACT,
        MODES,
        CaptureError,
        CaptureRefused,
        Segment,
        SegmentOptions,
    )

__all__ = [
    "CONTRACT",
    "MODES",
    "CaptureError",
    "CaptureRefused",
    "Segment",
    "SegmentOptions",
]

_MODULES = dict.fromkeys(__all__, "declaration")

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
