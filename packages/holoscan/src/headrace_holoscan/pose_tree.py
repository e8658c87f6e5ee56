"""holoscan.pose_tree: headrace's poses, and a tree whose limits are set by `init`."""

# ruff: noqa: F401

from __future__ import annotations

from typing import Any

from headrace.core import Composition
from headrace_holoscan import poses
from headrace_holoscan.absent import absent
from headrace_holoscan.core.services import DistributedAppService
from headrace_holoscan.poses import SO2, SO3, Pose2, Pose3, PoseTreeAccessMethod, PoseTreeError


class PoseTree(poses.PoseTree):
    """A pose tree; `init` may give it other limits than the default ones."""

    _history_chunk = 64

    def __init__(self) -> None:
        super().__init__()

    def init(
        self,
        number_frames: int = 1024,
        number_edges: int = 16384,
        history_length: int = 1048576,
        default_number_edges: int = 16,
        default_history_length: int = 1024,
        edges_chunk_size: int = 4,
        history_chunk_size: int = 64,
    ) -> None:
        """Set the limits; a tree with frames has been initialized."""
        if self._names:
            raise PoseTreeError("init of a tree with frames; call deinit() first")
        limits = (number_frames, number_edges, history_length, default_number_edges, default_history_length)
        for limit in (*limits, edges_chunk_size, history_chunk_size):
            self._at_least_one(limit, "each limit")
        super().__init__(*limits)
        self._history_chunk = history_chunk_size

    def deinit(self) -> None:
        """Forget everything."""
        super().__init__()

    def create_edges(
        self,
        lhs: int | str,
        rhs: int | str,
        number_edges: int = 16,
        method: PoseTreeAccessMethod = PoseTreeAccessMethod.DEFAULT,
    ) -> int:
        """Create an edge, whose history the SDK makes a whole number of chunks long."""
        chunks = -(-number_edges // self._history_chunk)
        return super().create_edges(lhs, rhs, chunks * self._history_chunk, method)


class PoseTreeManager(poses.PoseTreeManager, DistributedAppService):
    """A pose tree as a service; what the SDK's takes for other processes has no effect in one."""

    def __init__(
        self,
        fragment: Composition,
        port: int = 13337,
        number_frames: int = 1024,
        number_edges: int = 16384,
        history_length: int = 1048576,
        default_number_edges: int = 16,
        default_history_length: int = 1024,
        edges_chunk_size: int = 4,
        history_chunk_size: int = 64,
        request_timeout_ms: int = 5000,
        request_poll_sleep_us: int = 10,
        worker_progress_sleep_us: int = 100,
        server_shutdown_timeout_ms: int = 1000,
        server_shutdown_poll_sleep_ms: int = 10,
        maximum_clients: int = 1024,
        name: str = "noname_resource",
    ) -> None:
        super().__init__(fragment, name=name)
        limits = (number_frames, number_edges, history_length, default_number_edges, default_history_length)
        self.tree: PoseTree = PoseTree()
        self.tree.init(*limits, edges_chunk_size, history_chunk_size)


def _absent(name: str) -> Any:
    return absent(
        name, "UCX is not used; the operators of a program share a tree by PoseTreeManager as a service"
    )


PoseTreeUCXClient = _absent("PoseTreeUCXClient")
PoseTreeUCXClientConfig = _absent("PoseTreeUCXClientConfig")
PoseTreeUCXServer = _absent("PoseTreeUCXServer")
PoseTreeUCXServerConfig = _absent("PoseTreeUCXServerConfig")

__all__ = [name for name in dir() if name.startswith(("Pose", "SO")) and name != "PoseTreeError"]
