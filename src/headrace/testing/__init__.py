"""Tools for testing operators: run an operator by itself on given inputs, and inspect what it emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names
from headrace.testing.result import Message, OperatorResult
from headrace.testing.run_operator import run_operator

if TYPE_CHECKING:
    from headrace.testing.recordings import check_recording

__all__ = ["Message", "OperatorResult", "check_recording", "run_operator"]

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), {"check_recording": "recordings"})
