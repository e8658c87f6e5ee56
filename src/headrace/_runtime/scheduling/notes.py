"""Notes on exceptions: where they were raised, and their text for the log.

Nothing here raises, whatever the exception is: an error must not be replaced by an error of its report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.errors import add_note, message_of, notes_of

if TYPE_CHECKING:
    from headrace.core.condition import Condition
    from headrace.core.operator import Operator
    from headrace.core.resource import Resource


def note(error: BaseException, phase: str, component: Operator | Resource) -> None:
    """Add a note to an exception: which operator or resource raised it, and in which phase."""
    from headrace.core.resource import Resource

    notes = notes_of(error)
    if notes and notes[-1].startswith((_IN_A_CONDITION, _IN_AN_END)):
        return  # a method of a condition raised it, which the phase calls, or an end in place of a compute

    kind = "resource" if isinstance(component, Resource) else "operator"
    add_note(error, f"raised in {phase} of {kind} {name_of(component)!r} ({type(component).__name__})")
    if "STREAM_CAPTURE_UNSUPPORTED" in message_of(error) or "StreamCaptureUnsupported" in message_of(error):
        add_note(
            error,
            "a segment was being recorded, and the driver does not let anybody synchronize the whole device "
            "meanwhile; synchronize a stream, or record nothing (HEADRACE_CAPTURE=off)",
        )


def note_condition(error: BaseException, method: str, condition: Condition, operator: str) -> None:
    """Add a note to an exception: which condition of an operator raised it, and in which method."""
    kind = type(condition).__name__
    add_note(
        error, f"{_IN_A_CONDITION}{name_of(condition)!r} ({kind}) of operator {operator!r}, in its {method}"
    )


_IN_A_CONDITION = "raised by condition "
_IN_AN_END = "raised in end of "


def name_of(component: Any) -> str:
    """Return the name of an operator, a condition or a resource, even if it has lost it."""
    try:
        return str(component.name)
    except BaseException:
        return f"a {type(component).__name__} without a name"


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
