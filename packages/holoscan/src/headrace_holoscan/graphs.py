"""holoscan.graphs: the graphs of operators and of fragments, as versions before 4.0 call them."""

from __future__ import annotations

from headrace_holoscan.flow_graphs import FlowGraph as Graph
from headrace_holoscan.flow_graphs import FlowGraphImpl as FlowGraph
from headrace_holoscan.flow_graphs import FragmentFlowGraph as FragmentGraph
from headrace_holoscan.flow_graphs import FragmentFlowGraphImpl as FragmentFlowGraph
from headrace_holoscan.flow_graphs import OperatorFlowGraph as OperatorGraph
from headrace_holoscan.flow_graphs import OperatorFlowGraphImpl as OperatorFlowGraph

__all__ = ["FlowGraph", "FragmentFlowGraph", "FragmentGraph", "Graph", "OperatorFlowGraph", "OperatorGraph"]
