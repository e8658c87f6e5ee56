"""holoscan.schedulers."""

from __future__ import annotations

from headrace.schedulers import *  # noqa: F403
