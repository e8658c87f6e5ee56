"""Reload: the configuration file is read again during a run, and live parameters take on their new values.

A parameter follows a key of the configuration if the operator was given the section that holds it
(`from_config("camera")`), or if the section has the name of the operator and the operator was given that value by
keyword (``**self.kwargs("camera")``). A value that the program computes from the configuration, or gives to
anything other than a live parameter, changes with the next run. Composing again to find out more would run the
program's own code at a time that it does not expect.

Everything is checked before anything is changed, so that a reload takes place as a whole or not at all.
"""

from __future__ import annotations

import logging
import signal
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.core.errors import ParameterError

if TYPE_CHECKING:
    from types import FrameType

    from headrace.core.composition import Composition
    from headrace.core.config import Config
    from headrace.core.operator import Operator

_log = logging.getLogger("headrace.config")


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What came of reading the configuration again; see :meth:`Fragment.reload_config`."""

    changed: dict[str, Any] = field(default_factory=dict)
    """The new values of the live parameters that were set, by ``"operator.parameter"``."""
    needs_restart: tuple[str, ...] = ()
    """The keys whose new values take effect in the next run, because no live parameter follows them."""


def reload_config(fragment: Composition) -> Reloaded:
    """Read the configuration again, and set the live parameters that follow changed keys."""
    before = fragment._headrace.config
    if before is None or before.file is None:
        raise RuntimeError(
            f"{fragment.name!r} has no configuration file to read again: call config('file.yaml') first"
        )
    now = before.read_again()
    found: list[tuple[Operator, str, Any]] = []
    needs_restart: list[str] = []
    for key in now.changed_keys(before):
        followers = _followers(fragment, key, before)
        try:
            value = now.value(key)
        except KeyError:  # removed: the default, which the next run will use
            followers = []
        if not followers or not all(
            name in operator._headrace.live_parameters for operator, name in followers
        ):
            needs_restart.append(key)
        found += [
            (operator, name, value)
            for operator, name in followers
            if name in operator._headrace.live_parameters
        ]
    changes: dict[str, Any] = {}
    if fragment._headrace.run_control.has_begun:  # otherwise the next run reads the new values
        for operator, name, value in found:
            assert operator._headrace.live_state is not None
            changes[f"{operator.name}.{name}"] = operator._headrace.live_state.check(name, value)
        for operator, name, value in found:
            for each in operator._headrace.in_run():
                assert each._headrace.live_state is not None
                each._headrace.live_state.set(name, value, is_remembered=False)  # later runs read the file
    fragment._headrace.config = now
    return Reloaded(changes, tuple(needs_restart))


def _followers(fragment: Composition, key: str, before: Config) -> list[tuple[Operator, str]]:
    """Return the parameters that follow a key, with their operators."""
    section, _, name = key.rpartition(".")
    found: list[tuple[Operator, str]] = []
    for operator in dict.fromkeys(each._headrace.declared for each in fragment.graph):
        if name not in operator.spec.params:
            continue
        if name in operator._headrace.explicit:
            follows = operator.name == section and _had(before, key, operator._headrace.explicit[name])
        else:
            follows = bool(section) and any(arg.origin == section for arg in operator.args)
        if follows:
            found.append((operator, name))
    return found


def _had(config: Config, key: str, value: Any) -> bool:
    """Return whether a configuration has a value under a key."""
    try:
        return bool(config.value(key) == value)
    except Exception:  # it was not there; or an array, a tensor or an object of the program cannot tell
        return False


def reload_and_log(fragment: Composition) -> None:
    """Reload, and log what came of it; an error changes nothing and does not end the run."""
    from headrace.core.log import fields_of

    extra = fields_of(fragment)
    try:
        reloaded = reload_config(fragment)
    except (OSError, RuntimeError, ValueError, ParameterError) as error:
        _log.error("%r keeps its configuration: %s", fragment.name, error, exc_info=error, extra=extra)
        return
    set_ = ", ".join(f"{name} = {value!r}" for name, value in reloaded.changed.items())
    _log.info("%r read its configuration again; set: %s", fragment.name, set_ or "nothing", extra=extra)
    if reloaded.needs_restart:
        keys = ", ".join(reloaded.needs_restart)
        _log.warning("%r needs a restart for the new values of: %s", fragment.name, keys, extra=extra)


# The fragments that SIGHUP reloads. There is one handler for the process.
_reloading: weakref.WeakSet[Composition] = weakref.WeakSet()


def reload_on_hangup(fragment: Composition) -> None:
    """Reload whenever the process receives SIGHUP, from now on; to be called on the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(f"{fragment.name!r}: config(..., reload=True) must be called on the main thread")
    _reloading.add(fragment)
    signal.signal(signal.SIGHUP, _on_hangup)


def _on_hangup(number: int, frame: FrameType | None) -> None:
    # Not here: the main thread may be in the middle of anything, also of setting a parameter.
    threading.Thread(target=_reload_all, name="headrace reload", daemon=True).start()


def _reload_all() -> None:
    for fragment in list(_reloading):
        # The driver of a program in processes reads the file, and sets what follows from it in all of them.
        if fragment._headrace.config is not None and fragment._headrace.cut is None:
            reload_and_log(fragment)
