"""Resource: an object that operators share and that outlives one `compute`, such as a clock or a pool."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.core.construction import Inner, check_name, constructor, refuse_keywords
from headrace.core.parameters import check_parameter_name, set_up
from headrace.core.spec import ComponentSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.core.composition import Composition

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


class Component:
    """The base of conditions and resources.

    A parameter that `setup` declares becomes an attribute. Annotate it on the class, as the field of a dataclass,
    so that type checkers know it.
    """

    fragment: Composition | None
    """The fragment that it belongs to."""
    name: str
    """The name to find it by."""
    spec: ComponentSpec
    """What `setup` declared."""
    _headrace = Inner(InnerComponent)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = constructor(cls.__init__)  # type: ignore[method-assign]

    @constructor
    def __init__(
        self, fragment: Composition | None = None, *args: Any, name: str = "", **kwargs: Any
    ) -> None:
        kind = type(self)
        if args:
            raise TypeError(f"{kind.__name__} does not take {', '.join(map(repr, args))}")
        check_name(kind, name)
        self.fragment = None if fragment is None else fragment._headrace.root
        self.name = name or kind.__name__.lower()
        check = partial(check_parameter_name, kind=kind, base=self._headrace.base)
        self.spec = self._headrace.spec_type(fragment, check)
        set_up(self, self.spec)
        unknown = [key for key in kwargs if key not in self.spec.params]
        if unknown:
            refuse_keywords(kind, unknown, list(self.spec.params))
        if fragment is not None and self.spec.params and fragment._headrace.root._headrace.parameter_settings:
            name = fragment._headrace.qualified(self.name)
            with fragment._headrace.root._headrace.component_settings(name, self.spec.params) as values:
                self.spec.apply(self, {**kwargs, **values})
        else:
            self.spec.apply(self, kwargs)

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
