"""What a library is built on that gives headrace another vocabulary: its own names, defaults and leniencies.

``import headrace`` is one vocabulary; a distribution may offer another one, such as that of a system whose programs
are to run unchanged. Its classes derive from headrace's, and what a run asks of them is in their inner classes:
every `Operator`, `Fragment`, `Subgraph`, `Condition`, `Resource` and `Scheduler` keeps its state and the methods
that a run needs in one object, ``_headrace``, of an inner class. A vocabulary derives the inner class, overrides
what it answers otherwise, and names it in its own class::

    class InnerStage(InnerOperator):
        def refuse(self, arg): ...  # a positional argument that an operator does not take

    class Stage(Operator):
        _headrace = Inner(InnerStage)

Nothing in headrace knows of vocabularies. What stands here changes only with a line in the changelog.
"""

from __future__ import annotations

from headrace.application.application import InnerApplication
from headrace.application.fragment import InnerFragment
from headrace.application.runner import CONDITIONS
from headrace.brief import brief
from headrace.core.clock import InnerClock
from headrace.core.condition import BareCondition, InnerCondition
from headrace.core.config import Config
from headrace.core.construction import Inner, named_values
from headrace.core.errors import ConfigError, absent, choices
from headrace.core.graph import check_member, is_optional, port_pairs_of
from headrace.core.log import level_of, show_formatted
from headrace.core.node import Node
from headrace.core.operator import InnerOperator
from headrace.core.parameters import REQUIRED
from headrace.core.ports import INPUT_EXEC, OUTPUT_EXEC, PortCondition
from headrace.core.resource import InnerComponent
from headrace.core.run_files import numbered
from headrace.core.run_options import READERS, RunOptions, parse_count, parse_workers, value_of
from headrace.core.scheduler import InnerScheduler
from headrace.core.subgraph import InnerSubgraph
from headrace.core.values import byte_size, flag, whole_number
from headrace.core.wiring import Connectable, are_ends, owner_of
from headrace.tensor.conversion import is_array
from headrace.tensor.tensor_map import map_of_arrays

__all__ = [
    "CONDITIONS",
    "INPUT_EXEC",
    "OUTPUT_EXEC",
    "READERS",
    "REQUIRED",
    "BareCondition",
    "Config",
    "ConfigError",
    "Connectable",
    "Inner",
    "InnerApplication",
    "InnerClock",
    "InnerComponent",
    "InnerCondition",
    "InnerFragment",
    "InnerOperator",
    "InnerScheduler",
    "InnerSubgraph",
    "Node",
    "PortCondition",
    "RunOptions",
    "absent",
    "are_ends",
    "brief",
    "byte_size",
    "check_member",
    "choices",
    "flag",
    "is_array",
    "is_optional",
    "level_of",
    "map_of_arrays",
    "named_values",
    "numbered",
    "owner_of",
    "parse_count",
    "parse_workers",
    "port_pairs_of",
    "show_formatted",
    "value_of",
    "whole_number",
]
