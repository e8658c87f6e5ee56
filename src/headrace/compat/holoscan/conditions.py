"""holoscan.conditions: when an operator runs."""

from __future__ import annotations

from headrace.conditions import *  # noqa: F403
