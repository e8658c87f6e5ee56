"""DeviceSlices: the devices of a run as SMs and slices, and which slice each operator works on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime import source_of

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.observe.events.records import OperatorInfo, RunInfo


class DeviceSlices:
    """The slices of a run's devices.

    A slice has a key, which operators and slices share, and an index, by which it is coloured: -1 if nobody uses
    it. Operators without a slice of their own share one of all SMs, which has an index once they use a device.
    """

    def __init__(self, fragment: Composition, run: RunInfo) -> None:
        self._run = run
        self._plans: dict[int, gpu.Plan] = {}
        self._keys: dict[OperatorInfo, str] = {}
        for operator in run.operators:
            # The pools of other processes are not known.
            pool = None if getattr(operator.node, "is_elsewhere", False) else _pool_of(operator.node.operator)
            if pool is None or not operator.slice:
                continue
            try:
                self._plans.setdefault(pool.dev_id, pool.plan)
            except (gpu.PartitionError, gpu.DeviceUnavailable):  # the run will raise it
                continue
            self._keys[operator] = f"{pool.dev_id}:{operator.slice}"
        used = set(self._keys.values())
        self._indices = {
            f"{device}:{share.name}": index if f"{device}:{share.name}" in used else -1
            for device, plan in self._plans.items()
            for index, share in enumerate(plan)
        }

    def of(self, operator: OperatorInfo) -> tuple[str, int]:
        """Return the key and the index of an operator's slice; an empty key without one."""
        key = self._keys.get(operator)
        if key is not None:
            return key, self._indices[key]
        if not operator.streams:
            return "", -1
        device = operator.streams[0].device
        return f"{device}:*", len(self._plans[device]) if device in self._plans else 0

    def devices(self, busy: Mapping[str, float]) -> list[dict[str, Any]]:
        """Return every device in use, with its slices, given how busy each of those is by its key.

        `cells` is the number of SMs to draw for a slice.
        """
        counts = {device: plan.sm_count for device, plan in self._plans.items()}
        counts.update(self._run.device_sm_counts)
        return [self._device(device, count, busy) for device, count in sorted(counts.items())]

    def _device(self, device: int, count: int, busy: Mapping[str, float]) -> dict[str, Any]:
        plan = self._plans.get(device)
        # The name in its key, the name that is shown, the SMs that it has and that are drawn, and its index.
        rows = [
            (one.name, one.name, one.sm_count, one.sm_count, self._indices[f"{device}:{one.name}"])
            for one in plan or ()
        ]
        shared = dict(map(self.of, self._run.operators)).get(f"{device}:*")
        if shared is not None or plan is None:
            rows.append(
                ("*", "all SMs", count, count if plan is None else 0, -1 if shared is None else shared)
            )
        slices = [
            {
                "key": f"{device}:{key}",
                "name": name,
                "sms": sms,
                "cells": cells,
                "index": index,
                "busy": busy.get(f"{device}:{key}", 0.0),
            }
            for key, name, sms, cells, index in rows
        ]
        return {"name": plan.device_name if plan else f"device {device}", "sms": count, "slices": slices}


def _pool_of(operator: Any) -> Any:
    """Return the pool that divides the device for an operator, or None."""
    source: Any = source_of(operator) or operator.fragment.get_default_green_context_pool()
    while source is not None and not hasattr(source, "plan"):
        source = source.stands_on
    return source
