"""The rules by which an operator joins the messages of its inputs, as a program declares them.

``spec.join(rule, **rules)`` takes one rule for the inputs that make the operator run, and a rule by name for each
input that only follows. The rules are plain data; `conditions/joiner.py` decides by them, `conditions/join.py` runs
that in an application.

Two definitions come from elsewhere. `aligned` without a reference chooses sets as the ApproximateTime synchronizer
of ROS's message_filters. With a reference, and in `latest_within`, messages are chosen as by `pandas.merge_asof`,
in the directions "nearest" and "backward".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from headrace.brief import brief
from headrace.core.values import Duration, finite_number, nanoseconds, whole_number

Key: TypeAlias = str | Callable[[Any], Any]
"""What messages are compared by: the name of an entry of their metadata, or a function of the emitted object."""


@dataclass(frozen=True, slots=True)
class Substitute:
    """What stands for a missing message: see :func:`substitute`."""

    value: Any = None


Missing: TypeAlias = Literal["drop", "error"] | Substitute


def substitute(value: Any = None) -> Substitute:
    """Return the choice to let the operator run without a message that is missing: it receives `value` instead."""
    return Substitute(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinRule:
    """How an operator takes the messages of one input or of several; created by the functions of this module.

    Attributes
    ----------
    key
        What messages are compared by; None means their acquisition timestamps.
    wait
        How long to wait for a message, in nanoseconds of the run's clock; None means until it can no longer come.
    missing
        What happens if a message that is needed does not come.
    lateness
        By how much a message may come after later ones of the same input.
    late
        What happens to messages that come later than that.
    """

    key: Key | None = None
    wait: int | None = None
    missing: Missing = "drop"
    lateness: Any = 0
    late: Literal["drop", "error"] = "drop"


@dataclass(frozen=True, kw_only=True, slots=True)
class Aligned(JoinRule):
    """The rule of :func:`aligned`."""

    tolerance: Any
    policy: Literal["tightest", "first"]
    reference: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LatestWithin(JoinRule):
    """The rule of :func:`latest_within`."""

    age: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ReuseLast(JoinRule):
    """The rule of :func:`reuse_last`."""

    max_age: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Window(JoinRule):
    """The rule of :func:`window`."""

    length: Any
    step: Any
    is_counted: bool
    stack: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class AtRate(JoinRule):
    """The rule of :func:`at_rate`."""

    period: Any


def aligned(
    tolerance: Duration = 0,
    *,
    key: Key | None = None,
    policy: Literal["tightest", "first"] = "tightest",
    reference: str | None = None,
    wait: Duration | None = None,
    missing: Missing = "drop",
    lateness: Duration = 0,
    late: Literal["drop", "error"] = "drop",
) -> JoinRule:
    """Return the rule that an operator runs with one message of each input, all of them acquired at one time.

    Without a reference, each message is used at most once. Which sets are formed depends on the keys alone, not on
    the order in which messages of different inputs arrive, unless `wait` ends.

    Parameters
    ----------
    tolerance
        The largest distance between the oldest and the newest message of a set, or from the reference to any other.
        0 pairs only messages with the same key.
    key
        What messages are compared by: the name of an entry of their metadata, or a function of the emitted object.
        By default, their acquisition timestamp. Then, and if it is text, `tolerance` is a duration; beside a key,
        a number is in the unit of the key.
    policy
        ``"tightest"`` looks ahead for the set with the smallest distance, as ROS's ApproximateTime: a set is known
        when later messages have come. ``"first"`` takes the first set within the tolerance at once.
    reference
        An input that gets a set for each of its messages: the nearest message of every other input, which may
        belong to several sets.
    wait
        The longest time that a message waits for others after it has arrived.
    missing
        What becomes of a message for which another input has none: ``"drop"``, ``"error"`` or, with a reference,
        :func:`substitute`.
    lateness
        By how much a message may come after later ones of its input. They are put in order, which takes as long.
    late
        What becomes of a message that comes later than that: ``"drop"`` or ``"error"``.
    """
    if policy not in ("tightest", "first"):
        raise ValueError(f"aligned: policy must be 'tightest' or 'first', not {policy!r}")
    if reference is None and isinstance(missing, Substitute):
        raise ValueError(
            "aligned: missing=substitute(...) needs a reference=, the input whose messages are never missing"
        )
    if reference is not None and policy == "first":
        raise ValueError(
            "aligned: with a reference=, the nearest messages are taken; leave out policy='first'"
        )
    return Aligned(
        tolerance=_distance("aligned: tolerance", tolerance, key),
        policy=policy,
        reference=reference,
        **_common("aligned", key, wait, missing, lateness, late),
    )


def latest_within(
    age: Duration,
    *,
    key: Key | None = None,
    wait: Duration | None = None,
    missing: Missing = "drop",
    lateness: Duration = 0,
    late: Literal["drop", "error"] = "drop",
) -> JoinRule:
    """Return the rule that an input gives its latest message as of the messages that make the operator run.

    It is the newest message that is not newer than the newest of those, and older than it by at most `age`. It may
    be given again. By default the operator waits until the input has moved on, so that the result depends on the
    keys alone; ``wait=0`` takes what has arrived.

    Parameters
    ----------
    age
        How much older it may be.
    key, wait, missing, lateness, late
        As for :func:`aligned`.
    """
    return LatestWithin(
        age=_distance("latest_within: age", age, key),
        **_common("latest_within", key, wait, missing, lateness, late),
    )


def reuse_last(
    max_age: Duration | None = None, *, wait: Duration | None = None, missing: Missing = "drop"
) -> JoinRule:
    """Return the rule that an input gives the message that arrived last, again and again.

    The input does not make the operator run. It takes no part in comparisons, and its messages need no key.

    Parameters
    ----------
    max_age
        How long after its arrival a message may be given, by the run's clock.
    wait
        How long to wait for a message if there is none; by default, until one comes.
    missing
        What happens if none has come by then.
    """
    age = None if max_age is None else _positive("reuse_last: max_age", nanoseconds(max_age, "max_age"))
    return ReuseLast(max_age=age, **_common("reuse_last", None, wait, missing, 0, "drop"))


def window(
    length: int | str | timedelta,
    *,
    step: int | str | timedelta | None = None,
    key: Key | None = None,
    stack: bool = False,
    wait: Duration | None = None,
    lateness: Duration = 0,
    late: Literal["drop", "error"] = "drop",
) -> JoinRule:
    """Return the rule that an operator runs with a list of messages of an input.

    Parameters
    ----------
    length
        The number of messages, or a time such as ``"100ms"``. Windows of time begin at multiples of `step`, and
        contain the messages from their beginning up to their end, exclusively. Empty windows are left out.
    step
        How far one window is from the next, in messages or time; by default as far as a window is long. If it is
        less, windows overlap.
    key
        What windows of time go by, as in :func:`aligned`.
    stack
        Whether the operator gets one array, stacked from those of the messages along a new first axis.
    wait
        The longest time from the arrival of its oldest message until a window is given, even if it is incomplete.
    lateness, late
        As for :func:`aligned`.
    """
    is_counted = not isinstance(length, str | timedelta)
    long = _extent("window: length", length, is_counted)
    apart = long if step is None else _extent("window: step", step, is_counted)
    if apart > long:
        raise ValueError("window: step must not be more than the length, or messages would be in no window")
    return Window(
        length=long,
        step=apart,
        is_counted=is_counted,
        stack=bool(stack),
        **_common("window", key, wait, "drop", lateness, late),
    )


def at_rate(period: Duration, *, key: Key | None = None) -> JoinRule:
    """Return the rule that an operator runs at regular times of its messages' keys, whenever they come.

    Every input needs a rule of its own, such as :func:`latest_within`, that says which message it gives at such a
    time. The first time is the first at which every input has a message.

    Parameters
    ----------
    period
        The time between two computes: ``"30Hz"``, ``"20ms"``.
    key
        What the inputs go by, as in :func:`aligned`.
    """
    spacing = _distance("at_rate: period", period, key)
    if spacing <= 0:
        raise ValueError(f"at_rate: the period must be more than 0, not {period!r}")
    return AtRate(period=spacing, key=_checked_key("at_rate", key))


def _common(
    what: str, key: Key | None, wait: Duration | None, missing: Missing, lateness: Duration, late: str
) -> dict[str, Any]:
    if missing not in ("drop", "error") and not isinstance(missing, Substitute):
        raise ValueError(f"{what}: missing must be 'drop', 'error' or substitute(value), not {missing!r}")
    if late not in ("drop", "error"):
        raise ValueError(f"{what}: late must be 'drop' or 'error', not {late!r}")
    return {
        "key": _checked_key(what, key),
        "wait": None if wait is None else _positive(f"{what}: wait", nanoseconds(wait, f"{what}: wait")),
        "missing": missing,
        "lateness": _distance(f"{what}: lateness", lateness, key),
        "late": late,
    }


def _checked_key(what: str, key: Key | None) -> Key | None:
    if key is not None and not isinstance(key, str) and not callable(key):
        raise TypeError(f"{what}: key must be the name of a metadata entry or a function, not {key!r}")
    return key


def _distance(what: str, value: Duration, key: Key | None) -> Any:
    """Return a distance between keys: beside a key, a number is in its unit; else a duration in nanoseconds."""
    if key is not None and (number := finite_number(value)) is not None:
        return _positive(what, number)
    return _positive(what, nanoseconds(value, what))


def _extent(what: str, value: Any, is_counted: bool) -> int:
    """Return a number of messages, or a time in nanoseconds."""
    if is_counted:
        return whole_number(value, what, 1)
    if not isinstance(value, str | timedelta):
        raise TypeError(f"{what} must be a time such as '20ms', as the length is, not {brief(value)}")
    time = nanoseconds(value, what)
    if time < 1:
        raise ValueError(f"{what} must be more than 0, not {brief(value)}")
    return time


def _positive(what: str, value: Any) -> Any:
    if value < 0:
        raise ValueError(f"{what} must not be less than 0")
    return value
