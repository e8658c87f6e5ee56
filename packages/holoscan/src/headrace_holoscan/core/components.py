"""Components: what conditions, resources and schedulers of the SDK have in common, and their bases."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, ClassVar

from headrace.core import ComponentSpec as _ComponentSpec
from headrace.core import Condition as _Condition
from headrace.core import Resource as _Resource
from headrace.core import SchedulingStatusType
from headrace.vocabulary import BareCondition, Inner, InnerCondition, Node
from headrace.vocabulary import InnerComponent as _InnerComponent
from headrace.vocabulary import InnerScheduler as _InnerScheduler
from headrace_holoscan.core.arguments import Arg, described, described_natively
from headrace_holoscan.core.spec import ComponentSpec, described_parameters
from headrace_holoscan.core.yaml_values import dump
from headrace_holoscan.lenience import tell


def set_once(name: str, kind: Callable[[Any], Any] | None = None) -> Any:
    """Return a property that is set when a component is created, and never changed again; None is no value.

    With a `kind`, it is made by that of the component, in place of an empty value.
    """

    def assign(self: Any, value: Any) -> None:
        once = vars(self._headrace.once)
        if once.get(name) not in (None, value):
            raise AttributeError(f'cannot override read-only property "{name}"')
        once[name] = kind(self) if kind is not None and not value else value

    return property(attrgetter(f"_headrace.once.{name}"), assign)


class InnerComponent(_InnerComponent):
    """The state of a component."""

    spec_type: ClassVar[type[_ComponentSpec]] = ComponentSpec
    kind_label = ""
    """How the SDK calls the line that says what it is written in."""

    def __init__(self, component: Any) -> None:
        super().__init__(component)
        self.once = SimpleNamespace()
        # The arguments that it was given at its construction, and later.
        self.given: dict[str, Any] = {}
        self.more: tuple[Arg, ...] = ()

    def entries(self, component: Any) -> list[tuple[str, Any]]:
        """What it is, for `dump`."""
        fragment = getattr(component.fragment, "name", "") or '""'
        is_native = isinstance(component, _Native)
        args = [(described if is_native else described_natively)(arg) for arg in component.args]
        found = [("id", component.id), ("name", component.name or '""')]
        found += [("fragment", fragment), ("args", args)]
        if self.kind_label:
            # What headrace's classes declare are no parameters of the SDK's.
            spec = component.spec if is_native else ComponentSpec(component.fragment)
            found += [(self.kind_label, "native"), ("spec", tuple(described_parameters(spec)))]
        if isinstance(component, GXFComponent):
            found += [("gxf_eid", 0), ("gxf_cid", 0), ("gxf_typename", component.gxf_typename)]
        return found


class Component:
    """What every component has: its name, arguments and description."""

    id = property(lambda self: -1, doc="Its number in a run; -1, as before one.")
    name: str
    fragment: Any = set_once("fragment")
    spec: Any
    _headrace: Any = Inner(InnerComponent)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if type(self).__mro__[-2] is Component:
            unmade(self, kwargs)  # one of the bases, made by itself
            self.fragment = args[0] if args else None
        else:
            super().__init__(*args, **kwargs)

    def initialize(self) -> None:
        """Do what the component does before the first run."""
        getattr(super(), "initialize", lambda: None)()

    @property
    def args(self) -> list[Arg]:
        """The arguments that it was given."""
        return [*(Arg(key, value) for key, value in self._headrace.given.items()), *self._headrace.more]

    def add_arg(self, arg: Any) -> None:
        """Add a named value, or several, which set parameters that `setup` declares."""
        for named in [arg] if isinstance(arg, Arg) else arg:
            self._headrace.more = (*self._headrace.more, named)
            if named.name in self.spec.params and isinstance(self, _Native):
                setattr(self, named.name, named.value)

    @property
    def description(self) -> str:
        """The component as YAML."""
        return dump(self._headrace.entries(self))

    def __repr__(self) -> str:
        return self.description

    def service(self, service_type: Any, id: str = "") -> Any:  # noqa: A002 (the SDK's name)
        """Return a service of the fragment, or None."""
        return self.fragment.service(service_type, id)


def unmade(component: Any, arguments: dict[str, Any]) -> Any:
    """Return a component of a class, or this one, that has a name and arguments and belongs to no fragment."""
    found: Any = object.__new__(component) if isinstance(component, type) else component
    found._headrace.given = dict(arguments)
    found.name, found.fragment = found._headrace.given.pop("name", ""), None
    found.spec = ComponentSpec()
    return found


class _Kind(enum.Enum):
    """Whether a component is written in Python or by GXF; here all are native."""

    NATIVE = 0
    GXF = 1


class _InnerConditionBase(InnerComponent, InnerCondition):
    kind_label = "component_type"


class ConditionBase(Component):
    """The base of all conditions."""

    ConditionComponentType = _Kind
    _headrace = Inner(_InnerConditionBase)

    @property
    def condition_type(self) -> _Kind:
        """Whether it is native."""
        return _Kind.NATIVE


class InnerResourceBase(InnerComponent):
    """The state of a resource."""

    kind_label = "type"


class _InnerResource(InnerResourceBase):
    """The state of a program's own resource, which headrace calls by the SDK's names alone."""

    @classmethod
    def check_of(cls, resource: Any) -> Callable[[Any], None]:
        """Return a check that finds nothing."""
        return _Resource.check_graph

    def release(self, resource: Any) -> None:
        """Do nothing."""


class ResourceBase(Component):
    """The base of all resources."""

    ResourceType = _Kind
    _headrace = Inner(InnerResourceBase)

    @property
    def resource_type(self) -> _Kind:
        """Whether it is native."""
        return _Kind.GXF if isinstance(self, GXFComponent) else _Kind.NATIVE


class InnerScheduler(InnerComponent, _InnerScheduler):
    """The state of a scheduler."""


class Scheduler(Component):
    """The base of all schedulers."""

    _headrace = Inner(InnerScheduler)


class NetworkContext(Component):
    """The base of what connects the processes of an application."""


class GXFComponent:
    """The base of the components that the SDK takes from GXF."""

    @property
    def gxf_typename(self) -> str:
        """The name of the class of GXF that the SDK's component is of."""
        owner = next(kind for kind in type(self).__mro__ if kind.__module__.startswith("headrace_holoscan."))
        name = owner.__name__
        if name.endswith("Condition"):
            name = _TERMS.get(name) or name.replace("Condition", "SchedulingTerm")
        if name.endswith(("Receiver", "Transmitter")) and not name.startswith("Double"):
            return f"holoscan::Holoscan{name}"
        return f"nvidia::gxf::{name.replace('ConditionCombiner', 'SchedulingTermCombiner')}"


_TERMS = {
    "DownstreamMessageAffordableCondition": "DownstreamReceptiveSchedulingTerm",
    "MultiMessageAvailableTimeoutCondition": "MessageAvailableFrequencyThrottler",
}


class GXFNetworkContext(GXFComponent, NetworkContext):
    """The base of the ready network contexts."""


class GXFCondition(ConditionBase, GXFComponent):
    """The base of the ready conditions."""


class GXFResource(ResourceBase, GXFComponent):
    """The base of the ready resources."""


class GXFSystemResourceBase(GXFResource):
    """The base of thread pools."""


class _Native:
    """The constructor of a program's own component: what `setup` does not declare is ignored."""

    name: str
    spec: Any
    _headrace: Any

    def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
        kind = type(self).__name__
        if not hasattr(type(fragment), "add_flow"):
            raise ValueError(f"the first argument of {kind} is the application or fragment it belongs to")
        # The parameters are known when `setup` was called, which is before any value is set.
        before = dict(vars(self))
        named = {arg.name: arg.value for arg in args if isinstance(arg, Arg)}
        for arg in args:
            if isinstance(arg, list):
                named.update({each.name: each.value for each in arg})
            elif not isinstance(arg, Arg):
                tell(f"{kind} was given {arg!r}, which is ignored", f"{kind} does not take {arg!r}")
        given = {**named, **kwargs}
        name = given.pop("name", "")
        super().__init__(fragment, name=name)  # type: ignore[call-arg]
        self.name = name
        self._headrace.given = given
        for key, parameter in self.spec.params.items():
            if key in given:
                setattr(self, key, given[key])
            elif key in before:  # set before the constructor was called
                setattr(self, key, before[key])
            elif parameter.is_required:
                setattr(self, key, None)
        for key in given:
            if key not in self.spec.params and key not in ("receiver_name", "transmitter_name"):
                what = f"{kind} was given {key}, which its setup does not declare; it is ignored"
                tell(what, f"{kind} does not take {key!r}")


def _checked(check: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """Return the `check` of a program, whose answer is compared with what the SDK takes."""

    @functools.wraps(check)
    def checked(self: Any, timestamp: int) -> Any:
        answer = check(self, timestamp)
        where = f"condition {self.name!r}: the check method must return a tuple"
        if not isinstance(answer, tuple):
            raise RuntimeError(f"{where}, not {answer!r}")
        if len(answer) != 2:
            raise RuntimeError(f"{where} of size 2, not {answer!r}")
        status, until = answer
        if not isinstance(status, SchedulingStatusType):
            raise RuntimeError(f"{where} whose first element is a SchedulingStatusType, not {status!r}")
        if not isinstance(until, int | None):
            raise RuntimeError(f"{where} whose second element is an int or None, not {until!r}")
        if status is SchedulingStatusType.WAIT_TIME and until is None:
            return status, timestamp  # it is asked again at once
        return answer

    return checked


class _InnerNativeCondition(_InnerConditionBase):
    """The state of a condition that a program writes."""

    def __init__(self, condition: Any) -> None:
        super().__init__(condition)
        self.actor: _Acting | None = None

    def acting(self, condition: Any) -> _Acting:
        """Return what takes part in a run for the condition."""
        if self.actor is None:
            # Of a class of the same name, for errors.
            self.actor = type(type(condition).__name__, (_Acting,), {})(condition)
        return self.actor


class _Acting(_Condition):
    """Takes part in a run for a condition that a program writes, and calls it by the SDK's names alone."""

    matters_while_blocked = False
    name = property(lambda self: self._shown.name)
    fragment = property(lambda self: self._shown.fragment)
    spec = property(lambda self: self._shown.spec)

    def __init__(self, shown: Condition) -> None:
        self._shown = shown
        vars(self)["_headrace"] = shown._headrace

    @property
    def port_names(self) -> tuple[str, ...]:
        """The ports that it names."""
        given = self._shown._headrace.given
        names = (given.get("receiver_name"), given.get("transmitter_name"))
        return tuple(name for name in names if name is not None)

    def ports_of(self, node: Node) -> tuple[str, ...]:
        """Return its ports of `node`: the ports that it names and `node` has."""
        return tuple(name for name in self.port_names if name in (*node.input_queues, *node.output_queues))

    def initialize(self) -> None:
        """Prepare for a run."""
        self._shown.initialize()

    def check(self, timestamp: int) -> Any:
        """Return the current state."""
        return self._shown.check(timestamp)

    def update_state(self, timestamp: int) -> None:
        """Update the state that `check` uses."""
        self._shown.update_state(timestamp)

    def on_execute(self, timestamp: int) -> None:
        """Handle that `compute` ran."""
        self._shown.on_execute(timestamp)


class Condition(_Native, ConditionBase, BareCondition):
    """A condition that a program writes.

    It is evaluated when nothing else keeps its operator from running. ``receiver_name`` and ``transmitter_name``
    name ports whose default condition it replaces.
    """

    _headrace = Inner(_InnerNativeCondition)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("check")
        if inspect.isfunction(own):
            cls.check = _checked(own)  # type: ignore[assignment, method-assign]


class Resource(_Native, ResourceBase, _Resource):
    """A resource that a program writes."""

    _headrace = Inner(_InnerResource)
