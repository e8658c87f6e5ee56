"""The simulated part of cuda.core's interface (:mod:`headrace.gpu.device_names` lists it)."""

from __future__ import annotations

from headrace.gpu.sim.device import Context as Context
from headrace.gpu.sim.device import ContextOptions as ContextOptions
from headrace.gpu.sim.device import Device as Device
from headrace.gpu.sim.graph import Graph as Graph
from headrace.gpu.sim.graph import GraphBuilder as GraphBuilder
from headrace.gpu.sim.graph import GraphCompleteOptions as GraphCompleteOptions
from headrace.gpu.sim.graph_nodes import AllocNode as AllocNode
from headrace.gpu.sim.graph_nodes import EmptyNode as EmptyNode
from headrace.gpu.sim.graph_nodes import EventRecordNode as EventRecordNode
from headrace.gpu.sim.graph_nodes import EventWaitNode as EventWaitNode
from headrace.gpu.sim.graph_nodes import FreeNode as FreeNode
from headrace.gpu.sim.graph_nodes import GraphDefinition as GraphDefinition
from headrace.gpu.sim.graph_nodes import GraphNode as GraphNode
from headrace.gpu.sim.graph_nodes import HostCallbackNode as HostCallbackNode
from headrace.gpu.sim.graph_nodes import KernelNode as KernelNode
from headrace.gpu.sim.graph_nodes import MemcpyNode as MemcpyNode
from headrace.gpu.sim.graph_nodes import MemsetNode as MemsetNode
from headrace.gpu.sim.kernel import Kernel as Kernel
from headrace.gpu.sim.kernel import LaunchConfig as LaunchConfig
from headrace.gpu.sim.kernel import ObjectCode as ObjectCode
from headrace.gpu.sim.kernel import Program as Program
from headrace.gpu.sim.kernel import ProgramOptions as ProgramOptions
from headrace.gpu.sim.launches import launch as launch
from headrace.gpu.sim.memory import Buffer as Buffer
from headrace.gpu.sim.memory import CopyOptions as CopyOptions
from headrace.gpu.sim.memory import DeviceMemoryResource as DeviceMemoryResource
from headrace.gpu.sim.memory import GraphMemoryResource as GraphMemoryResource
from headrace.gpu.sim.memory import LegacyPinnedMemoryResource as LegacyPinnedMemoryResource
from headrace.gpu.sim.objects import CUDAError as CUDAError
from headrace.gpu.sim.resources import DeviceResources as DeviceResources
from headrace.gpu.sim.resources import SMResource as SMResource
from headrace.gpu.sim.resources import SMResourceOptions as SMResourceOptions
from headrace.gpu.sim.resources import WorkqueueResource as WorkqueueResource
from headrace.gpu.sim.resources import WorkqueueResourceOptions as WorkqueueResourceOptions
from headrace.gpu.sim.stream import LEGACY_DEFAULT_STREAM as LEGACY_DEFAULT_STREAM
from headrace.gpu.sim.stream import Event as Event
from headrace.gpu.sim.stream import EventOptions as EventOptions
from headrace.gpu.sim.stream import Stream as Stream
from headrace.gpu.sim.stream import StreamOptions as StreamOptions
