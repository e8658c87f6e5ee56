"""Where headrace does something else than the SDK on purpose, and what the comparison leaves open."""

from __future__ import annotations

from typing import Any

# Several threads print: which line comes first is not said.
ANY_ORDER = {"flow_control.fork_and_join"}

# Operators that look at the others now and then. How often they do depends on the time that the others take.
ANY_COUNT = {"status.a_monitor_that_ends_itself": "monitor"}

# What headrace does, and why. A key that is not named is the same as on the SDK.
DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {}

# Programs of tests/oracle in which the layer keeps what headrace does, for the reason that is given there.
KEPT: set[str] = set()
