"""Replicas: an operator that runs several times at once: its options, and what stands for it in a run."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.core.errors import ParameterError
from headrace.core.values import boolean, whole_number

if TYPE_CHECKING:
    from headrace.core.operator import Operator

MOST_REPLICAS = 256
"""More than this is a mistake."""

_PLACES = ("threads", "processes")


@dataclass(frozen=True, slots=True)
class Replicas:
    """How an operator is replicated.

    Attributes
    ----------
    workers
        The number of replicas.
    ordered
        Whether results leave in the order in which their messages came.
    on
        ``"threads"`` or ``"processes"``: where the replicas compute.
    """

    workers: int
    ordered: bool
    on: str

    @classmethod
    def take(cls, operator: str, keywords: dict[str, Any], parameters: Container[str]) -> Replicas | None:
        """Remove the options from the keywords of an operator, and return them; None if there are none.

        A parameter that the operator declares under one of these names keeps its meaning.
        """
        names = [name for name in ("workers", "ordered", "on") if name not in parameters]
        given = {name: keywords.pop(name) for name in names if name in keywords}
        where = f"operator {operator!r}: "
        if given and "workers" not in given:
            raise ParameterError(
                f"{where}{next(iter(given))}= says how several replicas work; give their number too: workers=4"
            )
        if not given:
            return None
        workers = whole_number(given["workers"], f"{where}workers", 1, MOST_REPLICAS)
        place = given.get("on", "threads")
        if place not in _PLACES:
            raise ParameterError(f"{where}on must be 'threads' or 'processes', not {place!r}")
        ordered = boolean(given.get("ordered", True), f"{where}ordered")
        if workers == 1 and place == "threads":
            return None
        return cls(workers, ordered, place)


@dataclass(slots=True)
class Replication:
    """What an operator has to do with replicas: nothing, mostly.

    Attributes
    ----------
    creation
        The arguments that created the operator, and create each replica.
    options
        How it is replicated, if it is.
    copies
        The replicas of a run, for the declared operator and for each of them.
    distributor, collector
        For the declared operator: what has its inputs and its name in the graph, and what has its outputs.
    declared
        For a replica and a distributor: the operator in whose place it is in the graph.
    """

    creation: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    options: Replicas | None = None
    copies: tuple[Operator, ...] = ()
    distributor: Operator | None = None
    collector: Operator | None = None
    declared: Operator | None = None
