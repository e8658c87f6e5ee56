"""The simulated part of cuda.core's interface (:mod:`penstock.gpu.device_names` lists it)."""

from __future__ import annotations

from penstock.gpu.sim.context import Context as Context
from penstock.gpu.sim.context import ContextOptions as ContextOptions
from penstock.gpu.sim.device import Device as Device
from penstock.gpu.sim.errors import CUDAError as CUDAError
from penstock.gpu.sim.event import Event as Event
from penstock.gpu.sim.event import EventOptions as EventOptions
from penstock.gpu.sim.graph import Graph as Graph
from penstock.gpu.sim.graph import GraphCompleteOptions as GraphCompleteOptions
from penstock.gpu.sim.graph_builder import GraphBuilder as GraphBuilder
from penstock.gpu.sim.graph_definition import GraphDefinition as GraphDefinition
from penstock.gpu.sim.graph_nodes import AllocNode as AllocNode
from penstock.gpu.sim.graph_nodes import EmptyNode as EmptyNode
from penstock.gpu.sim.graph_nodes import EventRecordNode as EventRecordNode
from penstock.gpu.sim.graph_nodes import EventWaitNode as EventWaitNode
from penstock.gpu.sim.graph_nodes import FreeNode as FreeNode
from penstock.gpu.sim.graph_nodes import GraphNode as GraphNode
from penstock.gpu.sim.graph_nodes import HostCallbackNode as HostCallbackNode
from penstock.gpu.sim.graph_nodes import KernelNode as KernelNode
from penstock.gpu.sim.graph_nodes import MemcpyNode as MemcpyNode
from penstock.gpu.sim.graph_nodes import MemsetNode as MemsetNode
from penstock.gpu.sim.kernel import Kernel as Kernel
from penstock.gpu.sim.launch_config import LaunchConfig as LaunchConfig
from penstock.gpu.sim.launches import launch as launch
from penstock.gpu.sim.memory import Buffer as Buffer
from penstock.gpu.sim.memory import DeviceMemoryResource as DeviceMemoryResource
from penstock.gpu.sim.memory import GraphMemoryResource as GraphMemoryResource
from penstock.gpu.sim.memory import LegacyPinnedMemoryResource as LegacyPinnedMemoryResource
from penstock.gpu.sim.program import ObjectCode as ObjectCode
from penstock.gpu.sim.program import Program as Program
from penstock.gpu.sim.program import ProgramOptions as ProgramOptions
from penstock.gpu.sim.resources import DeviceResources as DeviceResources
from penstock.gpu.sim.sm_resource import SMResource as SMResource
from penstock.gpu.sim.sm_resource import SMResourceOptions as SMResourceOptions
from penstock.gpu.sim.stream import LEGACY_DEFAULT_STREAM as LEGACY_DEFAULT_STREAM
from penstock.gpu.sim.stream import Stream as Stream
from penstock.gpu.sim.stream import StreamOptions as StreamOptions
from penstock.gpu.sim.workqueue_resource import WorkqueueResource as WorkqueueResource
from penstock.gpu.sim.workqueue_resource import WorkqueueResourceOptions as WorkqueueResourceOptions
