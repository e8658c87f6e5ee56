"""How long messages take, by the data-flow tracker, with its log file."""

import sys

from holoscan.conditions import CountCondition
from holoscan.core import Application, DataFlowMetric, Tracker
from holoscan.operators import PingRxOp, PingTxOp


class MyPingApp(Application):
    def compose(self):
        self.add_flow(PingTxOp(self, CountCondition(self, 30), name="tx"), PingRxOp(self, name="rx"))


def main(filename):
    app = MyPingApp()
    with Tracker(
        app, filename=filename, num_start_messages_to_skip=2, num_last_messages_to_discard=3
    ) as tracker:
        app.run()
        for path in tracker.get_path_strings():
            messages = tracker.get_metric(path, DataFlowMetric.NUM_DST_MESSAGES)
            latencies = [
                tracker.get_metric(path, metric)
                for metric in (
                    DataFlowMetric.MIN_E2E_LATENCY,
                    DataFlowMetric.AVG_E2E_LATENCY,
                    DataFlowMetric.MAX_E2E_LATENCY,
                )
            ]
            print(path, int(messages), latencies == sorted(latencies))
        print(tracker.get_metric(metric=DataFlowMetric.NUM_SRC_MESSAGES))
        tracker.print()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "flow.log")
