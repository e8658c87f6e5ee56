"""Python imports this as it starts, if its folder is on the path: programs that tests start are late, too."""

from __future__ import annotations

import os
import sys

if "LATE" in os.environ:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import late

    del sys.path[0]
    os.register_at_fork(after_in_child=late.begin_process)
    late.begin_process()
