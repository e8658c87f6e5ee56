"""The names of holoscan.conditions."""

from __future__ import annotations

from holoscan.conditions import *  # noqa: F403
from holoscan.conditions import CountCondition

__all__ = ["CountCondition"]
