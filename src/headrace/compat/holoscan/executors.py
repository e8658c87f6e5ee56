"""holoscan.executors."""

from __future__ import annotations

from headrace.compat.holoscan.absent import absent

__all__ = ["GXFExecutor"]

GXFExecutor = absent("GXFExecutor", "an application runs itself; call run() or run_async()")
