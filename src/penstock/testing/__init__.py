"""Tools for testing operators: run an operator by itself on given inputs, and inspect what it emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazy_getattr
from penstock.testing.message import Message
from penstock.testing.outcome import Outcome
from penstock.testing.run_operator import run_operator

if TYPE_CHECKING:
    from penstock.testing.recordings import check_recording

__all__ = ["Message", "Outcome", "check_recording", "run_operator"]

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__ = lazy_getattr(globals(), {"check_recording": "recordings"})
