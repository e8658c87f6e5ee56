"""A service: inspect parts on a belt, for months.

    headrace run examples/service/inspection.py --reload --metrics 127.0.0.1:9100 --log-format json

`kill -HUP` reads the configuration again; the threshold follows it without a restart.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from headrace import Application, PeriodicCondition, op, parameter

log = logging.getLogger("inspection")


@op
def camera(*, size: int):
    """Yield pictures of parts."""
    random = np.random.default_rng(7)
    while True:
        yield random.random((size, size))


@op(live={"threshold": parameter(minimum=0.0, maximum=1.0)}, on_error={"skip": 1000})
def inspect(picture, *, threshold: float):
    """Return the share of the pixels that are too bright."""
    return float((picture > threshold).mean())


@op
def report(share):
    """Report a part that is not good."""
    if share > 0.5:
        log.warning("%.0f %% of a part is too bright", 100 * share)


class Inspection(Application):
    """A camera, the inspection and a report."""

    stop_timeout = "20s"  # SIGTERM computes what is under way in half of it

    def compose(self) -> None:
        """Connect the operators."""
        source = camera(
            self, PeriodicCondition(self, self.from_config("belt.period")), size=self.from_config("belt.size")
        )
        stage = inspect(self, self.from_config("inspect"))
        self.add_flow(source, stage)
        self.add_flow(stage, report(self))
        self.expect("camera->report", p99="50ms")


if __name__ == "__main__":
    app = Inspection()
    app.config(Path(__file__).with_name("inspection.yaml"), argv=True)
    app.run()
