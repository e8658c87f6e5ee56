"""A stand-in for the kind of device that the process uses."""

from __future__ import annotations

import sys

import pytest

from headrace.gpu.backend import find_backend


def use_device(patch: pytest.MonkeyPatch, name: str) -> None:
    """Let the process use another kind of device for the rest of the test."""
    patch.setattr(sys.modules["headrace.gpu.backend"], "_active", find_backend(name))
