"""The specs that `setup` fills in: parameters and, for an operator, ports and their conditions."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Unpack
from weakref import WeakKeyDictionary

from headrace.core.error_policy import check_on_stuck, time_limit
from headrace.core.errors import GraphError, ParameterError, absent
from headrace.core.joins import JoinRule
from headrace.core.parameters import REQUIRED, Limits, Parameter, holder_of
from headrace.core.ports import INPUT_EXEC, ConditionType, IOSpec, PortCondition
from headrace.core.ports import port_names as names_of
from headrace.core.values import Duration

if TYPE_CHECKING:
    from headrace.core.error_policy import OnStuck


class ComponentSpec:
    """The parameters of a component."""

    _may_be_live = False

    def __init__(self, fragment: Any = None, check_name: Callable[[str], None] | None = None) -> None:
        self.fragment = fragment
        self.params: dict[str, Parameter] = {}
        # The annotations of the parameters; those of the component's class unless set.
        self.annotations: dict[str, Any] | None = None
        # Raises if the name of a parameter is taken by something else.
        self._check_name = check_name

    def param(
        self,
        name: str,
        default_value: Any = REQUIRED,
        **limits: Unpack[Limits],
    ) -> None:
        """Declare a parameter, which becomes an attribute of the component.

        Annotate the attribute on the class (``gain: float``), as the field of a dataclass: type checkers then know
        it, and a value of another type is rejected.

        Parameters
        ----------
        name
            The name of the attribute, and the keyword by which the program gives the value. It must not be the name
            of a method, or of an attribute that every component has, such as ``name``.
        default_value
            The value if the program gives none; without a default the program must give one.
        headline, description
            Text about the parameter, kept in ``spec.params``.
        live
            Whether an operator's parameter may be changed while it runs, by :meth:`Operator.set_live` or on the
            live page.
        minimum, maximum, choices
            The values that it may have; the live page makes a slider or a list of them.
        check
            Called with a value; raises ValueError or returns False if the value is wrong.
        convert
            Called with a value, and a text that says what it is, for an error; returns what the attribute becomes.
            Then the annotation is that of the attribute, and says nothing about the value.
        """
        declared = Parameter(name, default_value, **limits)
        if self._check_name is not None:
            self._check_name(declared.attribute)
        if declared.live and not self._may_be_live:
            raise ParameterError(f"parameter {name!r}: only an operator's parameters can be live")
        self.params[name] = declared

    def apply(self, component: Any, values: dict[str, Any]) -> None:
        """Set the parameters of `component`: the given values, or else the defaults."""
        owner = f"{type(component).__name__} {component.name!r}"
        target = holder_of(component)
        self.expect_types(component)
        for name, parameter in self.params.items():
            if parameter.convert is not None and parameter.default is not REQUIRED and name not in values:
                setattr(target, parameter.attribute, parameter.checked(parameter.default, owner))
            elif parameter.default is not REQUIRED:
                setattr(target, parameter.attribute, parameter.default)
        for name, value in values.items():
            self.give(component, owner, name, value)

    def expect_types(self, component: Any) -> None:
        """Set the types of the parameters, from the annotations or the defaults."""
        annotations = _annotations_of(type(component)) if self.annotations is None else self.annotations
        for parameter in self.params.values():
            annotation = annotations.get(parameter.attribute)
            parameter.expected, parameter.may_be_none = _type_of(annotation, parameter.default)

    def give(self, component: Any, owner: str, name: str, value: Any) -> None:
        """Set one parameter of `component`."""
        parameter = self.params.get(name)
        if parameter is None:
            hint = "" if self.params else f"; setup declares one by spec.param({name!r})"
            raise ParameterError(absent(owner, "parameter", name, self.params) + hint)
        setattr(holder_of(component), parameter.attribute, parameter.checked(value, owner))

    def missing(self, component: Any) -> list[str]:
        """Return the names of the required parameters without a value."""
        return [
            name
            for name, parameter in self.params.items()
            if parameter.is_required and not hasattr(holder_of(component), parameter.attribute)
        ]


_SIMPLE = {"int": int, "float": float, "str": str, "bool": bool, "dict": dict, "list": list, "tuple": tuple}
# Annotations that allow every value.
_ANYTHING = ("Any", "object")


# Of each class, since a run makes conditions for every port.
_ANNOTATIONS: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()


def _annotations_of(kind: type) -> dict[str, Any]:
    """Return the annotations of a class, with those of its bases."""
    found = _ANNOTATIONS.get(kind)
    if found is None:
        found = _ANNOTATIONS[kind] = {}
        for base in reversed(kind.__mro__):
            found.update(inspect.get_annotations(base))
    return found


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types of a union, or the only type."""
    if isinstance(annotation, str):
        return _alternatives_in(annotation)
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return list(typing.get_args(annotation)) if is_union else [annotation]


@functools.cache
def _alternatives_in(annotation: str) -> list[Any]:
    text = annotation.replace("typing.", "")
    if text.startswith("Optional["):
        return [text[len("Optional[") : -1], "None"]
    if text.startswith("Union["):
        return text[len("Union[") : -1].split(",")
    return [each.strip() for each in re.split(r"\|(?![^\[]*\])", text)]  # not inside of brackets


def _type_of(annotation: Any, default: Any) -> tuple[type | None, bool]:
    """Return the class that values must be of, None for any, and whether None is allowed besides."""
    alternatives = _alternatives(annotation)
    others = [each for each in alternatives if each not in (None, types.NoneType, "None")]
    may_be_none = len(others) < len(alternatives)
    if len(others) > 1 or others in ([each] for each in _ANYTHING):
        return None, may_be_none
    found = others[0] if others else None
    if isinstance(found, str):
        # Of annotations kept as text, use only plain names: evaluating others could import modules or fail.
        found = _SIMPLE.get(found)
    if isinstance(found, type):
        return (found if _can_be_checked(found) else None), may_be_none
    return (type(default) if type(default) in _SIMPLE.values() else None), may_be_none


def _can_be_checked(annotation: type) -> bool:
    """Return whether values can be checked against a class; not for Any, a TypedDict and most protocols."""
    try:
        isinstance(None, annotation)
    except TypeError:
        return False
    return True


class OperatorSpec(ComponentSpec):
    """The parameters, ports and port conditions of an operator."""

    _may_be_live = True
    _port_type: ClassVar[type[IOSpec]] = IOSpec
    """The class of the ports."""
    waits_for_queues_that_drop: ClassVar[bool] = False
    """Whether the operator waits for room in queues that drop messages, too, at an output without a condition."""

    def __init__(
        self,
        fragment: Any = None,
        owner: str = "",
        check_name: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(fragment, check_name)
        self.owner = owner
        self.inputs: dict[str, IOSpec] = {}
        self.outputs: dict[str, IOSpec] = {}
        # The ports of execution flows, which a program that looks at its ports does not expect.
        self._execution_inputs: dict[str, IOSpec] = {}
        self._execution_outputs: dict[str, IOSpec] = {}
        self.is_on_default_stream = False
        self.states: list[str] = []
        self.multi_port: list[PortCondition] = []
        self.or_combined: list[tuple[str, ...]] = []
        # The longest time of a compute in nanoseconds, 0 for any, and what happens when one takes longer.
        self.time_limit = 0
        self.on_stuck: OnStuck | None = None
        # Whether the name of a port may be empty.
        self.may_be_unnamed = False
        # The output for messages that are given up, if its error policy has one.
        self.dead_letter = ""

    def input(
        self, name: str = "input", *, size: int | IOSpec.IOSize = 1, policy: IOSpec.QueuePolicy | None = None
    ) -> IOSpec:
        """Declare an input port.

        Parameters
        ----------
        name
            The name `receive` and `add_flow` use.
        size
            The length of its queue. If it is more than one, `receive` returns a tuple of all waiting messages, and
            the operator runs when the queue is full, unless ``.condition(ConditionType.MESSAGE_AVAILABLE,
            min_size=...)`` sets a smaller number. ``IOSpec.ANY_SIZE`` creates a queue for each connection.
            ``IOSpec.PRECEDING_COUNT`` creates one queue whose length is the number of connections.
        policy
            What a full queue does with another message: ``POP`` drops the oldest, ``REJECT`` the new one, and
            ``FAULT`` (the default) raises :class:`QueueFullError` in the producer. A producer waits for room in a
            queue that faults. It does not wait for room in a queue that drops, unless its output has a
            ``DOWNSTREAM_MESSAGE_AFFORDABLE`` condition. ``LATEST`` keeps the newest message: `receive` returns it
            any number of times, and None before the first; the operator does not wait for messages there.
        """
        return self._add(self.inputs, name, IOSpec.IOType.INPUT, size, policy)

    def output(
        self, name: str = "output", *, size: int | IOSpec.IOSize = 1, policy: IOSpec.QueuePolicy | None = None
    ) -> IOSpec:
        """Declare an output port.

        Parameters
        ----------
        name
            The name `emit` and `add_flow` use.
        size
            The number of messages that one `compute` may emit here; the operator waits until every connected queue
            that does not drop has room for as many.
        policy
            What the connected queues do when full, unless the input or ``add_flow`` sets it.
        """
        return self._add(self.outputs, name, IOSpec.IOType.OUTPUT, size, policy)

    def _add(
        self,
        ports: dict[str, IOSpec],
        name: str,
        io_type: IOSpec.IOType,
        size: int | IOSpec.IOSize,
        policy: IOSpec.QueuePolicy | None,
    ) -> IOSpec:
        if not isinstance(name, str) or not (name or self.may_be_unnamed):
            raise GraphError(f"operator {self.owner!r}: a port's name must be a non-empty str, not {name!r}")
        if name in ports:
            raise GraphError(f"operator {self.owner!r} declares the {io_type.name.lower()} {name!r} twice")
        port = ports[name] = self._port_type(name, io_type, size, policy)
        return port

    def add_execution_port(self, name: str) -> None:
        """Declare the input or the output that orders computes, unless it is there."""
        ports = self._execution_inputs if name == INPUT_EXEC else self._execution_outputs
        if name not in ports:
            kind, size = (
                (IOSpec.IOType.INPUT, IOSpec.ANY_SIZE) if name == INPUT_EXEC else (IOSpec.IOType.OUTPUT, 1)
            )
            self._add(ports, name, kind, size, None)

    @property
    def every_input(self) -> dict[str, IOSpec]:
        """The inputs that `setup` declares, and that of the execution flows, if there are any."""
        return {**self.inputs, **self._execution_inputs} if self._execution_inputs else self.inputs

    @property
    def every_output(self) -> dict[str, IOSpec]:
        """The outputs that `setup` declares, and that of the execution flows, if there are any."""
        return {**self.outputs, **self._execution_outputs} if self._execution_outputs else self.outputs

    def state(self, *names: str) -> None:
        """Declare attributes that are the operator's state: arrays on the device that one compute leaves to the
        next.

        A compute may change such an array in place, or assign another of the same shape and type. In a captured
        segment the state goes on from replay to replay as it does from compute to compute.
        """
        for name in names:
            if not isinstance(name, str) or not name.isidentifier():
                raise ParameterError(
                    f"operator {self.owner!r}: spec.state takes names of attributes, not {name!r}"
                )
            if name in self.params:
                raise ParameterError(f"operator {self.owner!r} declares {name!r} as a parameter already")
        self.states += names

    def deadline(self, duration: Duration, on_stuck: OnStuck | None = None) -> None:
        """Declare how long one `compute` may take.

        Parameters
        ----------
        duration
            The longest time, by the clock of the run: ``"500ms"``, seconds (float), nanoseconds (int), a timedelta.
        on_stuck
            What happens, once for each compute that takes longer, while it still computes: ``"log"``, the default,
            logs where its thread is; ``"abort"`` stops the run, which then raises :class:`StuckError`; a function
            is called with a :class:`Stuck`, on a thread of its own, or on that of the compute if it has just ended.
        """
        self.time_limit = time_limit(duration, self.owner)
        if on_stuck is not None:
            self.on_stuck = check_on_stuck(on_stuck, self.owner)

    def default_stream(self) -> None:
        """Work on the default stream of the device, not on a stream of the operator's own.

        Neighbours that all say so need no events between them. Their kernels never overlap.
        """
        self.is_on_default_stream = True

    def multi_port_condition(self, kind: ConditionType, port_names: Iterable[str], **arguments: Any) -> None:
        """Put one condition on several inputs together, in place of their defaults."""
        if kind not in (ConditionType.MULTI_MESSAGE_AVAILABLE, ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT):
            raise GraphError(
                f"operator {self.owner!r}: multi_port_condition takes MULTI_MESSAGE_AVAILABLE or "
                f"MULTI_MESSAGE_AVAILABLE_TIMEOUT, not {kind!r}"
            )
        self.multi_port.append(PortCondition(kind, arguments, self._known(port_names)))

    def join(self, rule: JoinRule | None = None, /, **inputs: JoinRule) -> None:
        """Choose by their time, or another key, which messages of the inputs are received together.

        It replaces the conditions of all inputs that were given none. Call it after the inputs are declared; the
        last call counts.

        Parameters
        ----------
        rule
            The rule of the inputs that are not named: :func:`headrace.aligned`, :func:`headrace.window` or
            :func:`headrace.at_rate`. Without one, each message of the only input that is not named makes the
            operator run.
        inputs
            The rules of the others, by name: :func:`headrace.latest_within`, :func:`headrace.reuse_last`, or
            :func:`headrace.window` for one input.
        """
        where = f"operator {self.owner!r}: join"
        for name, each in inputs.items():
            if name not in self.inputs:
                raise GraphError(absent(where, "input", name, self.inputs))
            if not isinstance(each, JoinRule):
                raise TypeError(f"{where}: {name} must be a rule such as latest_within('10ms'), not {each!r}")
        if rule is not None and not isinstance(rule, JoinRule):
            raise TypeError(f"{where} takes a rule such as aligned('10ms'), not {rule!r}")
        self.multi_port = [each for each in self.multi_port if each.kind is not ConditionType.JOIN]
        self.multi_port.append(PortCondition(ConditionType.JOIN, {"rule": rule, "rules": inputs}))

    @property
    def is_joined(self) -> bool:
        """Whether the inputs are joined."""
        return any(each.kind is ConditionType.JOIN for each in self.multi_port)

    def or_combine_port_conditions(self, port_names: Iterable[str]) -> None:
        """Run the operator when the condition of any one of these ports holds; by default all must hold."""
        self.or_combined.append(self._known(port_names))

    def _known(self, port_names: Iterable[str]) -> tuple[str, ...]:
        names = names_of(port_names, f"operator {self.owner!r}: the ports of a condition")
        known = self.every_input | self.every_output
        for name in names:
            if name not in known:
                raise GraphError(
                    absent(f"operator {self.owner!r}", "port to put a condition on,", name, known)
                )
        return names
