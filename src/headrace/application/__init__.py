"""The application: what a program derives from, composes and runs.

`core` declares and the runtime runs. This package stands above both, and gives a run its scheduler, its conditions
and its observer.
"""

from __future__ import annotations

from headrace.application.application import Application
from headrace.application.fragment import Fragment

__all__ = ["Application", "Fragment"]
