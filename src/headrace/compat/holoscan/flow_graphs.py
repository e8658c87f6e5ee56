"""holoscan.flow_graphs."""

from __future__ import annotations

__all__: list[str] = []
