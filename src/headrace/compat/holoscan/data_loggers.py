"""holoscan.data_loggers."""

from __future__ import annotations

from headrace.observe import AsyncConsoleLogger, BasicConsoleLogger, GXFConsoleLogger

__all__ = ["AsyncConsoleLogger", "BasicConsoleLogger", "GXFConsoleLogger"]
