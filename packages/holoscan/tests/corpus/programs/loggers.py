"""Programs that log."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, DataFlowMetric, Fragment, Operator, OperatorSpec, Tracker
from holoscan.data_loggers import (
    AsyncConsoleLogger,
    BasicConsoleLogger,
    GXFConsoleLogger,
    SimpleTextSerializer,
)
from holoscan.logger import LogLevel, log_level, set_log_level, set_log_pattern
from holoscan.operators import PingRxOp, PingTxOp


class TxOp(Operator):
    def __init__(self, fragment, *args, **kwargs):
        self.count = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        self.count += 1
        op_output.emit(self.count, "out")


class MxOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        op_output.emit(op_input.receive("in") + 100, "out")


class RxOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        print(op_input.receive("in"))


class ChainApp(Application):
    count = 3

    def compose(self):
        tx, mx, rx = (
            TxOp(self, CountCondition(self, self.count), name="tx"),
            MxOp(self, name="mx"),
            RxOp(self, name="rx"),
        )
        self.add_flow(tx, mx)
        self.add_flow(mx, rx)


def levels_of_the_log():
    print([level.name for level in (LogLevel.TRACE, LogLevel.DEBUG, LogLevel.INFO, LogLevel.WARN)])
    print([int(level) for level in (LogLevel.TRACE, LogLevel.ERROR, LogLevel.CRITICAL, LogLevel.OFF)])
    for level in (LogLevel.WARN, LogLevel.DEBUG, LogLevel.OFF):
        set_log_level(level)
        print(log_level().name)
    try:
        set_log_level("INFO")
    except TypeError:
        print("TypeError")


def patterns_of_the_log():
    for pattern in ("SHORT", "DEFAULT", "LONG", "FULL", "%v"):
        print(set_log_pattern(pattern))


def a_console_logger_with_its_serializer():
    app = ChainApp()
    app.add_data_logger(
        BasicConsoleLogger(
            app,
            name="console",
            log_tensor_data_content=False,
            denylist_patterns=[".*rx.*"],
            serializer=SimpleTextSerializer(
                app, name="text", max_elements=5, log_python_object_contents=True
            ),
        )
    )
    app.run()


def other_console_loggers():
    for kind in (GXFConsoleLogger, AsyncConsoleLogger):
        app = ChainApp()
        app.add_data_logger(kind(app, name="console", log_inputs=False))
        app.run()


def figures_of_a_tracker():
    ChainApp.count = 12
    app = ChainApp()
    with Tracker(
        app, num_start_messages_to_skip=2, num_last_messages_to_discard=3, latency_threshold=0
    ) as tracker:
        app.run()
        (path,) = tracker.get_path_strings()
        print(path, tracker.get_metric(path, DataFlowMetric.NUM_DST_MESSAGES))
        least, mean, most = (
            tracker.get_metric(path, metric)
            for metric in (
                DataFlowMetric.MIN_E2E_LATENCY,
                DataFlowMetric.AVG_E2E_LATENCY,
                DataFlowMetric.MAX_E2E_LATENCY,
            )
        )
        print(
            0 <= least <= mean + 1e-9 <= most + 2e-9,
            tracker.get_metric(metric=DataFlowMetric.NUM_SRC_MESSAGES),
        )
        print(tracker.get_metric("no,path", DataFlowMetric.AVG_E2E_LATENCY))


class _Source(Fragment):
    def compose(self):
        self.add_operator(PingTxOp(self, CountCondition(self, 5), name="tx"))


class _Sink(Fragment):
    def compose(self):
        self.add_operator(PingRxOp(self, name="rx"))


class _Fragments(Application):
    def compose(self):
        self.add_flow(_Source(self, name="source"), _Sink(self, name="sink"), {("tx.out", "rx.in")})


def trackers_of_fragments():
    app = _Fragments()
    trackers = app.track_distributed(0, 0, 0)
    print(sorted(trackers))
    app.run()
    for name in ("source", "sink"):
        tracker = trackers[name]
        for path in tracker.get_path_strings():
            print(
                path.split(",")[0],
                path.split(",")[-1],
                tracker.get_metric(path, DataFlowMetric.NUM_DST_MESSAGES),
            )
    print(trackers["source"].get_metric(DataFlowMetric.NUM_SRC_MESSAGES))
    print(ChainApp().track_distributed())
