"""holoscan.resources: allocators, pools, clocks."""

from __future__ import annotations

from headrace.resources import *  # noqa: F403
