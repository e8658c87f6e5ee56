"""What happened in a run: flow tracking, GPU times, goals, traces, data loggers, and the live page.

A run that nobody watches pays nothing for any of it.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
