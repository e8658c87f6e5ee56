"""The application: what a program derives from, composes and runs.

`core` declares and the runtime runs. This package stands above both, and gives a run its scheduler, its conditions
and its observer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.application.application import Application
from headrace.application.fragment import Fragment

if TYPE_CHECKING:
    from headrace.application.running import Running
    from headrace.operators.feed import Feed
    from headrace.operators.results import Results

__all__ = ["Application", "Feed", "Fragment", "Results", "Running"]

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import, on first use, the ends of a run, which most programs do not have."""
        if name == "Feed":
            from headrace.operators.feed import Feed as found
        elif name == "Results":
            from headrace.operators.results import Results as found
        elif name == "Running":
            from headrace.application.running import Running as found
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return found
