"""The application: what a program derives from, composes and runs.

`core` declares and the runtime runs. This package stands above both, and gives a run its scheduler, its conditions
and its observer.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
