from headrace.gpu.sim.cuda_core import *  # noqa: F403
from headrace.gpu.sim.kernel import Launch as Launch
from headrace.gpu.sim.kernel import launched as launched
from headrace.gpu.sim.machine import Machine as Machine
from headrace.gpu.sim.machine import current_machine as current_machine
from headrace.gpu.sim.memory import host_view as host_view
from headrace.gpu.sim.objects import UnorderedAccessWarning as UnorderedAccessWarning
from headrace.gpu.sim.profiles import PROFILES as PROFILES
from headrace.gpu.sim.profiles import Profile as Profile
from headrace.gpu.sim.resources import WorkqueueSharingScopeType as WorkqueueSharingScopeType
