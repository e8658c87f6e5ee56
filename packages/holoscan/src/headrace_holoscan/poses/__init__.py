"""Poses over time: rotations, poses, and a tree of coordinate frames that operators share."""

from __future__ import annotations

from headrace_holoscan.poses.history import PoseTreeAccessMethod
from headrace_holoscan.poses.manager import PoseTreeManager
from headrace_holoscan.poses.pose_tree import PoseTree, PoseTreeError
from headrace_holoscan.poses.poses import Pose2, Pose3
from headrace_holoscan.poses.rotations import SO2, SO3

__all__ = [
    "SO2",
    "SO3",
    "Pose2",
    "Pose3",
    "PoseTree",
    "PoseTreeAccessMethod",
    "PoseTreeError",
    "PoseTreeManager",
]
