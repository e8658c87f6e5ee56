"""Captured segments: connected operators whose frames are replayed as one CUDA graph.

`Fragment.capture` declares a segment. It stands above the runtime, which knows groups of operators that are
scheduled as one (`GroupPlan`), and not what runs them. A frame's way: `segment` gets its messages, `cache` finds
its graph, `replay` orders streams and emits, `graph` launches.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
