"""holoscan.core: applications, operators and what they are declared with."""

from __future__ import annotations

from headrace.core import *  # noqa: F403
