"""PoseTreeManager: a pose tree as a service of a fragment, which all of its operators share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core import Resource
from headrace_holoscan.poses.pose_tree import PoseTree

if TYPE_CHECKING:
    from headrace.core import Composition


class PoseTreeManager(Resource):
    """Owns a pose tree; register it as a service, and operators find it.

    Parameters
    ----------
    fragment
        The fragment that it belongs to.
    name
        The name to find it by.
    **limits
        The parameters of :class:`PoseTree`.
    """

    def __init__(
        self, fragment: Composition | None = None, *, name: str = "pose_tree_manager", **limits: Any
    ) -> None:
        super().__init__(fragment, name=name)
        self.tree = PoseTree(**limits)
        """The pose tree."""
