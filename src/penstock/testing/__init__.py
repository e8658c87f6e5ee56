"""Tools for testing operators: run an operator by itself on given inputs, and inspect what it emitted."""

from __future__ import annotations

from penstock.testing.check_recording import check_recording
from penstock.testing.message import Message
from penstock.testing.outcome import Outcome
from penstock.testing.run_operator import run_operator

__all__ = ["Message", "Outcome", "check_recording", "run_operator"]
