"""The catalogue of resources: memory, streams and slices of a device, clocks, thread pools.

Each is imported when it is first used, because most programs use none and some import the runtime's streams.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
