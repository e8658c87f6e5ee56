"""Names of the SDK that are not here: using one raises an error that says why, and what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn


class NotHereError(NotImplementedError):
    """A name of the SDK that headrace does not have."""


class _Absent(type):
    """A class that can be imported, compared and named in annotations, and nothing else."""

    reason: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotHereError(f"holoscan's {cls.__name__} is not here: {cls.reason}")


def absent(name: str, reason: str) -> Any:
    """Return a stand-in for a class or function of the SDK, which raises when it is called.

    Parameters
    ----------
    name
        Its name.
    reason
        Why it is not here and what to use instead, as a sentence without its full stop.
    """
    return _Absent(name, (), {"reason": reason, "__doc__": f"Not here: {reason}."})


def reason_of(value: object) -> str | None:
    """Return why a name is not here, or None if it is."""
    return value.reason if isinstance(value, _Absent) else None
