"""An operator with parameters from a configuration file, some of whose sections are empty, or not there."""

import os
import sys

from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec, Tracker


class SourceOp(Operator):
    def __init__(self, fragment, *args, **kwargs):
        self.value = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")
        spec.param("step", 1)

    def compute(self, op_input, op_output, context):
        self.value += self.step
        op_output.emit(self.value, "out")


class ScaleOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")
        spec.param("factor", 1.0)
        spec.param("labels", ["none"])
        spec.param("options", {})
        spec.param("note", None)

    def start(self):
        print(f"factor={self.factor} labels={self.labels} options={self.options} note={self.note}")

    def compute(self, op_input, op_output, context):
        op_output.emit(op_input.receive("in") * self.factor, "out")


class PrintOp(Operator):
    def __init__(self, fragment, *args, prefix="value", **kwargs):
        self.prefix = prefix
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def stop(self):
        print("stopped")

    def compute(self, op_input, op_output, context):
        print(f"{self.prefix} {op_input.receive('in')}")


class CustomApp(Application):
    def compose(self):
        source = SourceOp(
            self, CountCondition(self, self.kwargs("run")["count"]), name="source", **self.kwargs("source")
        )
        scale = ScaleOp(self, name="scale", **self.kwargs("scale"))
        # Both sections have nothing for it.
        sink = PrintOp(self, name="sink", **self.kwargs("empty"), **self.kwargs("missing"))
        # Made, and never connected.
        PrintOp(self, name="spare")
        self.add_flow(source, scale)
        self.add_flow(scale, sink)
        self.add_flow(scale, sink)  # the same again


if __name__ == "__main__":
    app = CustomApp([sys.executable, *sys.argv])
    app.config(os.path.join(os.path.dirname(__file__), "custom_operator.yaml"))
    print(sorted(app.config_keys()), int(app.from_config("run.count")))
    with Tracker(app, num_start_messages_to_skip=0, num_last_messages_to_discard=0) as tracker:
        app.run()
        print(tracker.get_path_strings(), tracker.get_num_paths())
        tracker.print()
