"""Notes on exceptions: where they were raised, and their text for the log.

Nothing here raises, whatever the exception is: an error must not be replaced by an error of its report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.notes import add_note

if TYPE_CHECKING:
    from headrace.core.operator import Operator
    from headrace.core.resource import Resource

__all__ = ["message_of", "name_of", "note", "traceback_of"]


def note(error: BaseException, phase: str, component: Operator | Resource) -> None:
    """Add a note to an exception: which operator or resource raised it, and in which phase."""
    from headrace.core.resource import Resource

    kind = "resource" if isinstance(component, Resource) else "operator"
    add_note(error, f"raised in {phase} of {kind} {name_of(component)!r} ({type(component).__name__})")
    if "STREAM_CAPTURE_UNSUPPORTED" in message_of(error) or "StreamCaptureUnsupported" in message_of(error):
        add_note(
            error,
            "a segment was being recorded, and the driver does not let anybody synchronize the whole device "
            "meanwhile; synchronize a stream, or record nothing (HEADRACE_CAPTURE=off)",
        )


def name_of(component: Any) -> str:
    """Return the name of an operator, a condition or a resource, even if it has lost it."""
    try:
        return str(component.name)
    except BaseException:
        return f"a {type(component).__name__} without a name"


def message_of(error: BaseException) -> str:
    """Return the text of an exception, even if its ``__str__`` raises."""
    try:
        return str(error)
    except BaseException:
        return "<its __str__ raised>"


def traceback_of(error: BaseException) -> str:
    """Return the text of an exception and its traceback, for the log.

    The exception itself is not logged: a logging handler that keeps its records would keep the stack frames, and
    with them the operator's data.
    """
    import traceback

    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException:
        return f"{type(error).__name__}: {message_of(error)} (its traceback cannot be shown)"
