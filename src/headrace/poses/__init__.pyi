from headrace.poses.history import PoseTreeAccessMethod as PoseTreeAccessMethod
from headrace.poses.manager import PoseTreeManager as PoseTreeManager
from headrace.poses.pose_tree import PoseTree as PoseTree
from headrace.poses.pose_tree import PoseTreeError as PoseTreeError
from headrace.poses.poses import Pose2 as Pose2
from headrace.poses.poses import Pose3 as Pose3
from headrace.poses.rotations import SO2 as SO2
from headrace.poses.rotations import SO3 as SO3
