"""holoscan.data_loggers: lines about messages, as the SDK writes them, in the log on stderr."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from headrace import observe
from headrace.observe import AsyncQueuePolicy
from headrace.tensor import Tensor, TensorMap
from headrace_holoscan import logger
from headrace_holoscan.core.bases import DataLoggerQueueType
from headrace_holoscan.core.components import ResourceBase
from headrace_holoscan.signatures import taking

SUBMODULES = ("async_console_logger", "basic_console_logger")
async_console_logger = basic_console_logger = sys.modules[__name__]
__all__ = [
    "AsyncConsoleLogger",
    "BasicConsoleLogger",
    "GXFConsoleLogger",
    "SimpleTextSerializer",
    *SUBMODULES,
]

_FILTERS = (
    "fragment, serializer=None, log_inputs=True, log_outputs=True, log_metadata=True, "
    "log_tensor_data_content=True, use_scheduler_clock={}, clock=None, allowlist_patterns=[], "
    "denylist_patterns=[], "
)


@taking(
    "fragment, max_elements=10, max_metadata_items=10, log_video_buffer_content=False, "
    "log_python_object_contents=True, name='simple_text_serializer'"
)
class SimpleTextSerializer(ResourceBase, observe.SimpleTextSerializer):
    """Writes an object by its repr, and the newest metadata first."""

    def serialize_to_string(self, data: Any, log_content: bool = True) -> str:
        """Return the text of any object that is neither a tensor nor a TensorMap."""
        return self._item(data)

    def serialize_metadata_to_string(self, metadata: dict[str, Any] | None) -> str:
        """Return the text of metadata."""
        return super().serialize_metadata_to_string(dict(reversed((metadata or {}).items())))

    def _item(self, value: Any, log_content: bool = True) -> str:
        if isinstance(value, (Tensor, TensorMap)):
            return super()._item(value, log_content)
        return (
            f"Python({type(value).__name__}): {value!r}"
            if self.log_python_object_contents
            else "Python Object"
        )


class _Lines(ResourceBase):
    """What the lines of all loggers have in common."""

    _shows_empty_metadata = True
    _serializer: ClassVar[type[observe.SimpleTextSerializer]] = SimpleTextSerializer

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        given: Any = getattr(self, "queue_policy", None)
        if isinstance(given, str):
            vars(self)["queue_policy"] = AsyncQueuePolicy[given.upper()]

    def initialize(self) -> None:
        """Prepare for a run."""
        logger.show()

    def _describe(self, data: Any) -> tuple[str, str, str]:
        category, kind, text = super()._describe(data)  # type: ignore[misc]
        return "Message (std::any)" if category == "Message" else category, kind, text


@taking(_FILTERS.format(True) + "name='basic_console_logger'")
class BasicConsoleLogger(_Lines, observe.ConsoleLogger):
    """A line for every message."""

    _label = "BasicConsoleLogger"


@taking(_FILTERS.format(True) + "name='gxf_basic_console_logger'")
class GXFConsoleLogger(BasicConsoleLogger):
    """A line for every message."""


@taking(
    _FILTERS.format(False) + "max_queue_size=50000, worker_sleep_time=50000, queue_policy=REJECT, "
    "large_data_max_queue_size=1000, large_data_worker_sleep_time=50000, large_data_queue_policy=REJECT, "
    "enable_large_data_queue=True, shutdown_wait_period_ms=-1, queue_type=LOCK_FREE, name='async_console_logger'",
    REJECT=AsyncQueuePolicy.REJECT,
    LOCK_FREE=DataLoggerQueueType.LOCK_FREE,
)
class AsyncConsoleLogger(_Lines, observe.ConsoleLogger):
    """A line for every message, in the order of the messages: those with tensors have no queue of their own."""

    _label = "AsyncConsoleLogger"
