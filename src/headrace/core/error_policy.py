"""ErrorPolicy: what happens when an operator's compute raises.

A policy has up to three parts, in the order in which they apply: retries, an action for an error that remains
(``stop``, ``skip``, ``restart``), and the output that gets the messages which are given up (``dead_letter``). A
program writes it with the functions of this module, joined by ``|``::

    retry(times=3, backoff="100ms") | restart(times=5, per="1h") | dead_letter("failed")

or as a word or a mapping, so that a configuration file can hold it. The mapping has the names and the arguments of
the functions; a bare number is `times`::

    on_error: {retry: {times: 3, backoff: 100ms}, restart: {times: 5, per: 1h}, dead_letter: failed}

Decided against: policies as a list. The order of its entries would look as if it mattered.

What a compute may take, what happens when it takes longer, and how often computes failed is here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from headrace.brief import brief
from headrace.core.errors import ParameterError, choices
from headrace.core.values import Duration, nanoseconds

OnError: TypeAlias = "Literal['stop', 'skip'] | Mapping[str, Any] | ErrorPolicy"
"""The type of ``on_error``."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What happens when a compute raises.

    Attributes
    ----------
    action
        What becomes of an error after the retries: ``"stop"``, ``"skip"`` or ``"restart"``; an empty text means
        ``"skip"`` with a `dead_letter`, and else ``"stop"``.
    limit, per
        How often the action may be taken (None: any number): in the run, or in every `per` nanoseconds.
    retries, backoff, same_message
        How often a compute is tried again; the nanoseconds before the first of these attempts, doubled before each
        further one; and whether it gets the messages of the failed attempt.
    dead_letter
        The output that gets the messages which are given up; empty for none.
    """

    action: str = ""
    limit: int | None = None
    per: int | None = None
    retries: int = 0
    backoff: int = 0
    same_message: bool = True
    dead_letter: str = ""

    def __or__(self, other: OnError) -> ErrorPolicy:
        """Return a policy with the parts of both."""
        return _join(self, _parse(other))

    @property
    def keeps_messages(self) -> bool:
        """Whether the messages of a compute are needed after it has failed."""
        return bool(self.dead_letter or (self.retries and self.same_message))

    @staticmethod
    def of(value: Any, operator: str) -> ErrorPolicy:
        """Return the policy that a program wrote as `value` for an operator, with its action filled in."""
        try:
            policy = _parse(value)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"operator {operator!r}: {error}") from None
        return replace(policy, action=policy.action or ("skip" if policy.dead_letter else "stop"))


def retry(times: int, *, backoff: Duration = 0, same_message: bool = True) -> ErrorPolicy:
    """Compute again after an error, up to `times` times in a row.

    Parameters
    ----------
    times
        The number of further attempts. The error of the last one counts: it stops the run, or the policy joined to
        this one by ``|`` applies.
    backoff
        How long to wait, by the run's clock, before the first of these attempts. Each further wait is twice as
        long, up to a minute. Other operators run meanwhile.
    same_message
        Whether an attempt gets the messages of the failed one. What a failed attempt emitted is not sent then. If
        False, these messages are skipped, and the attempts get the messages that follow.
    """
    if not isinstance(same_message, bool):
        raise ParameterError(f"same_message must be true or false, not {same_message!r}")
    waits = _duration(backoff, "backoff", 0)
    return ErrorPolicy(retries=_times(times, "retry"), backoff=waits, same_message=same_message)


def skip(times: int | None = None, *, per: Duration | None = None) -> ErrorPolicy:
    """Skip the messages of a compute that failed, at most `times` times in a run, or in every period `per`."""
    return _action("skip", times, per)


def restart(times: int, *, per: Duration | None = None) -> ErrorPolicy:
    """Skip the messages, and call `stop` and `start`, at most `times` times in a run, or in every period `per`."""
    return _action("restart", times, per)


def dead_letter(port: str) -> ErrorPolicy:
    """Send the messages that are given up out of an output, with a description of the error in their metadata.

    Parameters
    ----------
    port
        The name of the output. The operator gets it, unless `setup` declares it.
    """
    if not isinstance(port, str) or not port:
        raise ParameterError(f"dead_letter must be the name of an output, not {port!r}")
    return ErrorPolicy(dead_letter=port)


_PARTS: dict[str, tuple[Callable[..., ErrorPolicy], tuple[str, ...]]] = {
    "retry": (retry, ("times", "backoff", "same_message")),
    "skip": (skip, ("times", "per")),
    "restart": (restart, ("times", "per")),
    "dead_letter": (dead_letter, ("port",)),
}
"""The functions, and the names of their arguments."""


def _parse(value: Any) -> ErrorPolicy:
    """Return a policy; its action may be open."""
    if isinstance(value, ErrorPolicy):
        return value
    if isinstance(value, str) and value in ("stop", "skip"):
        return ErrorPolicy(value)
    if isinstance(value, Mapping) and value:
        policy = ErrorPolicy()
        for part, arguments in value.items():
            try:
                policy = _join(policy, _made(part, arguments))
            except ParameterError as error:
                raise _wrong(value, f": {error}") from None
        return policy
    raise _wrong(value)


def _made(part: Any, given: Any) -> ErrorPolicy:
    """Return one part of a mapping; a bare value is the first argument, and nothing means none."""
    if part not in _PARTS:
        raise ParameterError(f"there is no {part!r}; there are {choices(_PARTS, str(part))}")
    make, names = _PARTS[part]
    arguments = dict(given) if isinstance(given, Mapping) else {names[0]: given}
    for name in arguments:
        if name not in names:
            raise ParameterError(f"{part} does not take {name!r}; it takes {choices(names, str(name))}")
    return make(**{names[0]: None, **arguments})


def _join(first: ErrorPolicy, second: ErrorPolicy) -> ErrorPolicy:
    if first.action and second.action:
        raise ParameterError(
            f"on_error has both {first.action!r} and {second.action!r}; an error needs one of them"
        )
    if (first.retries and second.retries) or (first.dead_letter and second.dead_letter):
        raise ParameterError(f"on_error has {'retry' if first.retries else 'dead_letter'!r} twice")
    action = first if first.action else second
    retries = first if first.retries else second
    return ErrorPolicy(
        action.action,
        action.limit,
        action.per,
        retries.retries,
        retries.backoff,
        retries.same_message,
        first.dead_letter or second.dead_letter,
    )


def _action(action: str, times: int | None, per: Duration | None) -> ErrorPolicy:
    if times is None and per is not None:
        raise ParameterError(f"{action} has 'per' without 'times'")
    limit = None if times is None and action == "skip" else _times(times, action)
    return ErrorPolicy(action, limit, None if per is None else _duration(per, "per", 1))


def _times(times: Any, part: str) -> int:
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise ParameterError(f"the times of {part} must be a positive int, not {times!r}")
    return times


def _duration(given: Any, name: str, least: int) -> int:
    duration = nanoseconds(given, f"{name} in on_error")
    if duration < least:
        raise ParameterError(
            f"{name} in on_error must be {'positive' if least else '0 or more'}, not {brief(given)}"
        )
    return duration


def _wrong(value: Any, why: str = "") -> ParameterError:
    return ParameterError(
        "on_error must be 'stop', 'skip', or a mapping such as {'skip': 100}, {'restart': {'times': 3, 'per': '1h'"
        f"}}}} or {{'retry': {{'times': 3, 'backoff': '100ms'}}, 'dead_letter': 'failed'}}, not {brief(value)}{why}"
    )


@dataclass(slots=True)
class FaultCounts:
    """How often the computes of one operator failed or were stuck.

    A run has one for each operator, and `Fragment.progress` returns copies. Only the operator's computes change it,
    except for `stuck`, which the watchdog changes.
    """

    skipped: int = 0
    """The number of errors whose messages were given up, without a restart (``on_error``)."""
    restarts: int = 0
    """The number of times it was stopped and started again after an error."""
    retries: int = 0
    """The number of times it computed again after an error."""
    dead_letters: int = 0
    """How many of the messages that were given up were sent to the output for them."""
    stuck: int = 0
    """The number of computes that took longer than the operator's deadline."""
    cut_off: int = 0
    """The number of errors whose messages were given up because the run ended before they were tried again."""
    last_error: str = ""
    """The last of these errors."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The counts, in the order of their names here."""
        return self.skipped, self.restarts, self.retries, self.dead_letters, self.stuck, self.cut_off

    @property
    def given_up(self) -> int:
        """The number of errors with which messages were given up."""
        return self.skipped + self.restarts + self.cut_off

    def __bool__(self) -> bool:
        return any(self.numbers)


OnStuck: TypeAlias = "Literal['log', 'abort'] | Callable[[Stuck], object]"
"""The type of ``on_stuck``."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A compute that has taken longer than the deadline of its operator."""

    operator: str
    """The name of the operator."""
    seconds: float
    """How long it has computed so far, by the clock of the run."""
    deadline: float
    """How long it may compute, in seconds."""
    stack: str
    """The stack of its thread at that moment; empty if the compute had ended by then.

    For a call of a coroutine, where it awaits; or where the event loop is, if the call had not begun.
    """

    def __str__(self) -> str:
        text = (
            f"operator {self.operator!r} has computed for {self.seconds:.3f} s, longer than its deadline of "
        )
        return f"{text}{self.deadline:g} s" + (f"\n{self.stack}" if self.stack else "")


def time_limit(duration: Duration, operator: str) -> int:
    """Return the deadline that a program wrote for an operator, in nanoseconds."""
    try:
        limit = nanoseconds(duration, "deadline")
    except (TypeError, ValueError) as error:
        raise ParameterError(f"operator {operator!r}: {error}") from None
    if limit <= 0:
        raise ParameterError(f"operator {operator!r}: deadline must be positive, not {duration!r}")
    return limit


def check_on_stuck(on_stuck: Any, operator: str) -> OnStuck:
    """Return what a program wrote as ``on_stuck`` for an operator; raise if it makes no sense."""
    if on_stuck in ("log", "abort") or callable(on_stuck):
        found: OnStuck = on_stuck
        return found
    raise ParameterError(
        f"operator {operator!r}: on_stuck must be 'log', 'abort' or a function that takes a Stuck, not {on_stuck!r}"
    )
