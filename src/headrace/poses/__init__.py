"""Poses over time: rotations, poses, and a tree of coordinate frames that operators share."""

from __future__ import annotations

from headrace.poses.history import PoseTreeAccessMethod
from headrace.poses.manager import PoseTreeManager
from headrace.poses.pose_tree import PoseTree, PoseTreeError
from headrace.poses.poses import Pose2, Pose3
from headrace.poses.rotations import SO2, SO3

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
