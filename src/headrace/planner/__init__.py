"""The planner: from goals to streams, slices and segments, measured on the device and written into a file.

`measure` runs the program on slices of every size, `best_layouts` searches by a `model`, `make_plan` tries what was
found and corrects the model. A `Plan` is a file that people read and edit; `Fragment.use_plan` declares what it
says. Nothing changes while a program runs: `PlanWatch` says when reality has left the plan.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
