"""Resource: an object that operators share and that outlives one `compute`, such as a clock or a pool."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.core.construction import (
    Inner,
    check_name,
    is_fragment,
    is_named,
    named_values,
    without_fragment,
)
from headrace.core.errors import ConfigError, ParameterError, choices
from headrace.core.parameters import check_parameter_name, positional, set_up, usual_name
from headrace.core.spec import ComponentSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.composition import Composition
    from headrace.core.parameters import argument, declared

S = TypeVar("S")


class InnerComponent:
    """The state of a condition or a resource. It does not refer to it, so that it is gone with its last user."""

    spec_type: ClassVar[type[ComponentSpec]] = ComponentSpec
    """The class of the spec that `setup` fills in."""
    holder: ClassVar[Any] = None
    base: ClassVar[type[Component]]
    """The class whose names no parameter has."""

    def __init__(self, component: Component) -> None:
        """Begin with nothing."""

    @classmethod
    def check_of(cls, resource: Resource) -> Callable[[Composition], None]:
        """Return what checks a graph that uses a resource, once for the class of it."""
        return type(resource).check_graph

    def release(self, resource: Resource) -> None:
        """Release what the run used of a resource."""
        resource.release()


if TYPE_CHECKING:

    @declared
    class _Arguments:
        """The arguments that each condition and resource takes, for constructors of classes with `declared`."""

        fragment: Composition | None = argument(kw_only=False, default=None)
        name: str = argument(default="")

else:
    _Arguments = object


class Component(_Arguments):
    """The base of conditions and resources.

    Its parameters are fields of the class, as those of an operator (`declared`, `parameter`), or declared in
    `setup`.
    """

    fragment: Composition | None
    """The fragment that it belongs to."""
    name: str
    """The name to find it by."""
    spec: ComponentSpec
    """What `setup` declared."""
    _headrace = Inner(InnerComponent)

    def __init__(
        self, fragment: Composition | None = None, *args: Any, name: str = "", **kwargs: Any
    ) -> None:
        kind = type(self)
        if fragment is not None and not is_fragment(fragment):
            given = {**({"name": name} if name else {}), **kwargs}
            is_passed_on = kind.__init__ is not Component.__init__
            raise without_fragment(kind, fragment, (fragment, *args), given, is_passed_on)
        named = {arg.name: arg.value for arg in named_values(args)}
        named_so = named.pop("name", "")  # also where the program gives another name
        check_name(kind, name)
        check_name(kind, named_so)
        self.fragment = None if fragment is None else fragment._headrace.root
        self.name = name or named_so or usual_name(kind) or kind.__name__.lower()
        check = partial(check_parameter_name, kind=kind, base=self._headrace.base)
        self.spec = self._headrace.spec_type(fragment, check)
        set_up(self, self.spec)
        values = named | kwargs | _by_position(self, args, kwargs)
        unknown = [key for key in values if key not in self.spec.params]
        if unknown:
            known = choices([*self.spec.params, "name"], unknown[0])
            raise ParameterError(f"{kind.__name__} does not take {choices(unknown)}; it takes {known}")
        settings: dict[str, Any] = {}
        if fragment is not None:
            name = fragment._headrace.qualified(self.name)
            # What users set wins over what the program gives.
            settings = fragment._headrace.root._headrace.set_parameters(self, kind.__name__, name)
        self.spec.apply(self, values | settings)
        # That of a dataclass is for its own constructor, and may have called this one.
        begins = next(base for base in kind.__mro__ if not is_dataclass(base) and issubclass(base, Component))
        try:
            begins.__post_init__(self)
        except (TypeError, ValueError) as error:
            if fragment is None or not settings:
                raise
            origins = fragment._headrace.root._headrace.origins_of(name, settings)
            raise ConfigError(f"{origins}: {error}") from error

    def __post_init__(self) -> None:
        """Check what the parameters are together, and begin; called when they have their values."""

    # Methods that a subclass overrides.

    def setup(self, spec: ComponentSpec) -> None:
        """Declare parameters."""

    def initialize(self) -> None:
        """Prepare for a run; called once per run."""

    def service(self, service_type: type[S], id: str = "") -> S | None:  # noqa: A002 (the SDK's name)
        """Return a service of the fragment that this belongs to, or None (:meth:`Composition.service`)."""
        return None if self.fragment is None else self.fragment.service(service_type, id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Resource(Component):
    """The base of resources; subclass it to write your own.

    Parameters
    ----------
    fragment
        The fragment that the resource belongs to.
    name
        The name to find it by; the class's name in lower case unless given.
    **kwargs
        The values of the parameters that `setup` declares.
    """

    @staticmethod
    def check_graph(fragment: Composition) -> None:
        """Raise if a graph uses resources of this class incorrectly.

        A subclass may override it. It is called once for each class, when the graph has been composed.
        """

    def initialize(self) -> None:
        """Prepare for a run; called once per run, before the first operator is initialized."""

    def release(self) -> None:
        """Release what the run used; called once per run, after the last operator has stopped."""


InnerComponent.base = Resource


def _by_position(component: Component, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that were given by position."""
    kind = type(component).__name__
    names, given = positional(type(component)), [arg for arg in args if not is_named(arg)]
    if len(given) > len(names):
        others = [*(each for each in component.spec.params if each not in names), "name"]
        raise TypeError(
            f"{kind} takes ({', '.join(['self', *names])}) by position and {choices(others)} by keyword"
        )
    twice = [name for name in names[: len(given)] if name in kwargs]
    if twice:
        raise TypeError(f"{kind} was given {choices(twice)} by position and by keyword")
    return dict(zip(names, given, strict=False))
