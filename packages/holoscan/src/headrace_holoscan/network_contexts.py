"""holoscan.network_contexts."""

from __future__ import annotations

from headrace_holoscan.absent import absent

__all__ = ["UcxContext"]

UcxContext = absent(
    "UcxContext", "the fragments of an application run in one process; remove the network context"
)
