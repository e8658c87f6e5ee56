"""The poses of an edge over time, and how one is found between them."""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum
from typing import NamedTuple

from headrace_holoscan.poses.poses import Pose3


class PoseTreeAccessMethod(IntEnum):
    """How the pose at a time is found from the poses that were set. The numbers are the SDK's."""

    NEAREST = 0
    """The pose whose time is closest."""
    INTERPOLATE_LINEARLY = 1
    """Between two poses: the point on a line, the rotation at a constant rate. After the last: the last."""
    EXTRAPOLATE_LINEARLY = 2
    """The same, and after the last pose the motion goes on. Needs two poses."""
    INTERPOLATE_SLERP = 3
    """Between two poses: rotation and translation as one motion, along a screw. After the last: the last."""
    EXTRAPOLATE_SLERP = 4
    """The same, and after the last pose the motion goes on. Needs two poses."""
    PREVIOUS = 5
    """The last pose that was set for this time or before it."""
    DEFAULT = 6
    """The method that the edge was created with; INTERPOLATE_LINEARLY unless given."""


class TimedPose(NamedTuple):
    """A pose from a time on; None if the edge is disconnected from then on."""

    time: float
    version: int
    pose: Pose3 | None


class Sample(NamedTuple):
    """A pose that was found, or what it is to be computed from."""

    first: Pose3
    second: Pose3 | None = None
    fraction: float = 0.0
    is_screw: bool = False

    def pose(self) -> Pose3:
        """Compute the pose."""
        if self.second is None:
            return self.first.copy()
        if self.is_screw:
            return self.first.interpolate_screw(self.fraction, self.second)
        return self.first.interpolate(self.fraction, self.second)


class EdgeHistory:
    """The last poses of the edge between two frames, by increasing time."""

    def __init__(self, length: int, method: PoseTreeAccessMethod) -> None:
        self.length = length
        self.method = method
        if method is PoseTreeAccessMethod.DEFAULT:
            self.method = PoseTreeAccessMethod.INTERPOLATE_LINEARLY
        self.poses: list[TimedPose] = []

    @property
    def is_connected(self) -> bool:
        """Whether the edge exists now: its last pose was not followed by a disconnection."""
        return bool(self.poses) and self.poses[-1].pose is not None

    def accepts(self, time: float) -> bool:
        """Return whether a time is after all others."""
        return not self.poses or time > self.poses[-1].time

    def add(self, time: float, version: int, pose: Pose3 | None) -> None:
        """Add a pose, or None for a disconnection; the oldest one is forgotten if there are too many."""
        self.poses.append(TimedPose(time, version, pose))
        if len(self.poses) > self.length:
            del self.poses[0]  # moves at most `length` pointers, which takes less than a search

    def sample(self, time: float, method: PoseTreeAccessMethod, version: int) -> Sample | None:
        """Find the pose at a time, as a version of the tree knew it; None if the frames were not linked then."""
        poses = self.poses
        at = bisect_right(poses, time, key=_time_of)
        if poses and poses[-1].version > version:
            at = min(at, bisect_right(poses, version, key=_version_of))
        if at == 0:
            return None
        last = poses[at - 1]
        if last.pose is None:
            return None
        if method is PoseTreeAccessMethod.DEFAULT:
            method = self.method
        following = poses[at] if at < len(poses) and poses[at].version <= version else None
        if method is PoseTreeAccessMethod.PREVIOUS:
            return Sample(last.pose)
        first, second = last, following
        if second is None or second.pose is None:
            if method not in _EXTRAPOLATES:
                return Sample(last.pose)
            if at < 2:
                return None
            first, second = poses[at - 2], last
        assert second.pose is not None
        if first.pose is None:
            return None
        if method is PoseTreeAccessMethod.NEAREST:
            return Sample(second.pose if second.time - time < time - first.time else first.pose)
        fraction = (time - first.time) / (second.time - first.time)
        return Sample(first.pose, second.pose, fraction, method in _SCREWS)


_EXTRAPOLATES = (PoseTreeAccessMethod.EXTRAPOLATE_LINEARLY, PoseTreeAccessMethod.EXTRAPOLATE_SLERP)
_SCREWS = (PoseTreeAccessMethod.INTERPOLATE_SLERP, PoseTreeAccessMethod.EXTRAPOLATE_SLERP)


def _time_of(pose: TimedPose) -> float:
    return pose.time


def _version_of(pose: TimedPose) -> int:
    return pose.version
