"""Sources with a period, conditions that are switched, and a scheduler with several threads."""

import datetime

from holoscan.conditions import BooleanCondition, CountCondition, PeriodicCondition
from holoscan.core import Application, ConditionType, Operator, OperatorSpec
from holoscan.operators import PingRxOp, PingTxOp
from holoscan.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler


class SwitchOp(Operator):
    """Passes on what it receives, and switches itself off after the fifth message."""

    def setup(self, spec: OperatorSpec):
        spec.input("in").condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
        spec.output("out").condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1)

    def compute(self, op_input, op_output, context):
        value = op_input.receive("in")
        if value == 5:
            self.conditions["alive"].disable_tick()
        op_output.emit(value * 10, "out")


class PeriodicPingApp(Application):
    def __init__(self, scheduler):
        self.kind = scheduler
        super().__init__()

    def compose(self):
        tx = PingTxOp(
            self,
            CountCondition(self, 10),
            PeriodicCondition(self, recess_period=datetime.timedelta(milliseconds=1)),
            name="tx",
        )
        switch = SwitchOp(self, BooleanCondition(self, enable_tick=True, name="alive"), name="switch")
        rx = PingRxOp(self, name="rx")
        self.add_flow(tx, switch, {("out", "in")})
        self.add_flow(switch, rx, {("out", "in")})


if __name__ == "__main__":
    for kind, options in (
        (GreedyScheduler, {}),
        (MultiThreadScheduler, {"worker_thread_number": 2, "stop_on_deadlock_timeout": 100}),
        (EventBasedScheduler, {"worker_thread_number": 2, "stop_on_deadlock": True}),
    ):
        app = PeriodicPingApp(kind)
        app.scheduler(kind(app, name="scheduler", **options))
        app.run()
