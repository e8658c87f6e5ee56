"""holoscan.executors."""

from __future__ import annotations

from typing import Any

from headrace_holoscan.core.executor import Executor

__all__ = ["GXFExecutor"]


class GXFExecutor(Executor):
    """The executor of an application."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
