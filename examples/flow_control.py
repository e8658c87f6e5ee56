"""Measure until the value is steady, then report; an alarm is routed beside, and a control reads the newest value.

    $ headrace run examples/flow_control.py

Time is virtual, so the run takes no time and is always the same.
"""

from __future__ import annotations

from headrace import (
    Application,
    CountCondition,
    GreedyScheduler,
    IOSpec,
    ManualClock,
    Operator,
    PeriodicCondition,
    op,
)

VALUES = (20, 95, 40, 31, 30)


class Measure(Operator):
    """Measures once each time that it is told to."""

    def setup(self, spec):
        spec.output("value")

    def start(self):
        self.taken = []

    def compute(self, op_input, op_output, context):
        self.taken.append(VALUES[len(self.taken)])
        print(f"measured {self.taken[-1]}")
        op_output.emit(self.taken[-1], "value")


@op
def alarm(value):
    print(f"alarm: {value}")


@op
def report():
    print("steady")


class Control(Operator):
    """Reads the newest value three times, whether there is a new one or not."""

    def setup(self, spec):
        spec.input("value", policy=IOSpec.QueuePolicy.LATEST)

    def compute(self, op_input, op_output, context):
        print(f"control reads {op_input.receive('value')}")


class FlowControl(Application):
    def compose(self):
        self.scheduler(GreedyScheduler(self, clock=ManualClock(self)))
        measure, steady = Measure(self, name="measure"), report(self)
        loud = alarm(self)
        control = Control(self, PeriodicCondition(self, "1s"), CountCondition(self, 3), name="control")
        self.start_op().then(measure).then(measure)  # a loop: measure again
        measure.then(steady)
        self.add_flow(measure, (loud, control))

        def choose(operator):
            last = operator.taken[-1]
            operator.add_dynamic_flow(control)
            if last > 90:
                operator.add_dynamic_flow(loud)
            is_steady = len(operator.taken) > 1 and abs(last - operator.taken[-2]) < 5
            operator.add_dynamic_flow(Operator.OUTPUT_EXEC_PORT_NAME, steady if is_steady else operator)

        self.set_dynamic_flows(measure, choose)


if __name__ == "__main__":
    FlowControl().run()
