"""holoscan.operators: the ready operators."""

from __future__ import annotations

from headrace.operators import *  # noqa: F403
