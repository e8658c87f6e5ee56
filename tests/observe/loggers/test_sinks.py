"""Sinks: the rows of ArrowLogger and the entities of RerunLogger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.conditions import CountCondition
from headrace.gpu import sim
from headrace.observe import ArrowLogger, RerunLogger
from tests.harness import App, Consumer, Producer, Step, sink, source

VALUES: list[Any] = [
    7,
    2.5,
    True,
    "text",
    b"bytes",
    None,
    np.arange(6, dtype=np.int16).reshape(2, 3),
    (1, "a"),
]


def detailed(app: Any) -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        self.metadata["number"] = self.ticks
        op_output.emit(VALUES[self.ticks - 1], "out", acq_timestamp=100 + self.ticks)

    app.add_flow(
        Step(app, CountCondition(app, len(VALUES)), outputs=["out"], body=body, name="tx"), sink(app, [])
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    arrow = pytest.importorskip("pyarrow", reason="ArrowLogger needs pyarrow")
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path).to_pylist()
    with arrow.OSFile(str(path)) as file:
        reader = arrow.ipc.open_stream(file) if path.suffix == ".arrows" else arrow.ipc.open_file(file)
        return reader.read_all().to_pylist()


def run_with(logger: Any, compose: Any) -> App:
    app = App(compose)
    app.add_data_logger(logger)
    app.run()
    return app


@pytest.mark.parametrize("ending", ["parquet", "arrow", "arrows", "feather"])
def test_each_message_is_a_row(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("pyarrow", reason="ArrowLogger needs pyarrow")
    path = tmp_path / f"messages.{ending}"
    run_with(ArrowLogger(path=path, flush_rows=3), detailed)
    rows = rows_of(path)
    assert len(rows) == 2 * len(VALUES)
    emitted = [row for row in rows if row["direction"] == "output"]
    assert {(row["operator"], row["port"]) for row in rows} == {("tx", "out"), ("sink", "in")}
    assert [row["acq_timestamp"] for row in emitted] == [101 + number for number in range(len(VALUES))]
    assert json.loads(emitted[1]["metadata"]) == {"number": 2}
    assert [row["scalar"] for row in emitted] == [7, 2.5, 1, None, None, None, None, None]
    assert [row["text"] for row in emitted] == [None, None, None, "text", None, None, None, "(1, 'a')"]
    assert emitted[4]["data"] == b"bytes"
    assert (emitted[6]["shape"], emitted[6]["dtype"]) == ([2, 3], "int16")
    assert np.frombuffer(emitted[6]["data"], np.int16).tolist() == [0, 1, 2, 3, 4, 5]


def test_tensors_of_a_device_are_rows(tmp_path: Path, machine: sim.Machine) -> None:
    pytest.importorskip("pyarrow", reason="ArrowLogger needs pyarrow")

    def compose(app: Any) -> None:
        app.add_flow(Producer(app, CountCondition(app, 5), name="producer"), Consumer(app, name="consumer"))
        app.add_flow(source(app, [{"a": np.zeros(2), "b": np.ones(3, np.uint8)}]), sink(app, []))

    path = tmp_path / "messages.parquet"
    run_with(ArrowLogger(path=path, log_inputs=False), compose)
    rows = rows_of(path)
    frames = [row for row in rows if row["operator"] == "producer"]
    assert [np.frombuffer(row["data"], np.int64)[0] for row in frames] == list(range(5))
    entries = [row for row in rows if row["operator"] == "source"]
    assert [(row["name"], row["shape"], row["dtype"]) for row in entries] == [
        ("a", [2], "float64"),
        ("b", [3], "uint8"),
    ]


def test_the_flushed_rows_of_a_stream_are_readable_before_its_end(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="ArrowLogger needs pyarrow")
    path, cut = tmp_path / "messages.arrows", tmp_path / "cut.arrows"
    run_with(ArrowLogger(path=path, flush_rows=4, log_inputs=False), detailed)
    content = path.read_bytes()
    counts = set()
    for length in (*range(0, len(content), 50), len(content) - 8):  # the end has 8 bytes
        cut.write_bytes(content[:length])
        found = 0
        try:
            reader = arrow.ipc.open_stream(cut.read_bytes())
            for batch in reader:
                found += batch.num_rows
        except (arrow.ArrowInvalid, OSError):
            pass
        counts.add(found)
    assert counts == {0, 4, 8}


def test_an_ending_that_names_no_format_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="ArrowLogger needs pyarrow")
    with pytest.raises(
        ValueError, match=r"must end in .parquet, .arrows, .arrow, .feather, not '.*rows.csv'"
    ):
        ArrowLogger(path=tmp_path / "rows.csv")


def test_messages_are_entities_of_rerun(tmp_path: Path) -> None:
    rerun = pytest.importorskip("rerun", reason="RerunLogger needs rerun")

    def compose(app: Any) -> None:
        values = [
            1.5,
            "text",
            {"image": np.zeros((4, 5, 3), np.uint8), "points": np.zeros((2, 2), np.float32)},
        ]
        app.add_flow(source(app, values, name="tx"), sink(app, []))

    path = tmp_path / "messages.rrd"
    run_with(RerunLogger(target=path), compose)
    paths: set[str] = set()
    try:
        recording = rerun.recording.load_recording(path)
        paths = {str(column.entity_path) for column in recording.schema().component_columns()}
    except AttributeError:  # newer versions read a file in another way
        content = path.read_bytes()
        paths = {f"/tx/out{end}" for end in ("", "/image", "/points") if f"tx/out{end}".encode() in content}
    assert {"/tx/out", "/tx/out/image", "/tx/out/points"} <= paths
