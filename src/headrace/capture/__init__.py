"""Captured segments: connected operators whose frames are replayed as one CUDA graph.

`Fragment.capture` declares a segment. It stands above the runtime, which knows groups of operators that are
scheduled as one (`GroupPlan`), and not what runs them. A frame's way: `segment` gets its messages, `cache` finds
its graph, `replay` orders streams and emits, `graph` launches.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace.core.registry import registry
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
    from headrace.core import protocols
    from headrace.core.fragment import Fragment

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


def _capture(fragment: Fragment, operators: Any, name: str, **options: Any) -> protocols.Segment:
    from headrace.capture.declaration import capture

    return capture(fragment, operators, name, **options)


def _find_segments(fragment: Fragment) -> None:
    # Most programs have no segments, and need not import what makes them.
    if fragment._segments or fragment._chain_options is not None or os.environ.get("HEADRACE_CAPTURE"):
        from headrace.capture.declaration import find_segments

        find_segments(fragment)


def _plan_groups(fragment: Fragment) -> list[Any]:
    if not fragment._segments:
        return []
    from headrace.capture.declaration import plan_groups

    return plan_groups(fragment)


registry.capture = _capture
registry.find_segments = _find_segments
registry.plan_groups = _plan_groups
