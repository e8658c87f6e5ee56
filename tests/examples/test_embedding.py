"""The examples of embedding a pipeline run, and end when they should."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from examples import embed_asyncio
from tests.harness import PATIENCE
from tests.harness.processes import signal_python


def test_the_asyncio_example_labels_frames_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(embed_asyncio.main())
    assert capsys.readouterr().out.splitlines() == [
        f"{number} {'bright' if number > 2 else 'dark'}" for number in range(6)
    ]


def test_the_web_server_answers_requests_side_by_side() -> None:
    pytest.importorskip("aiohttp")
    from aiohttp.test_utils import TestClient, TestServer

    from examples.embed_web_server import server

    async def main() -> list[float]:
        async with TestClient(TestServer(server())) as client:

            async def ask(value: int) -> float:
                async with client.post("/mean", data=bytes([value] * 100)) as response:
                    return (await response.json())["mean"]

            asking = asyncio.gather(*map(ask, range(40)))
            assert (await client.post("/mean")).status == 400
            return await asking

    assert asyncio.run(main()) == [float(value) for value in range(40)]
    assert not [thread.name for thread in threading.enumerate() if "Means" in thread.name]


def test_the_web_server_refuses_what_it_cannot_take() -> None:
    pytest.importorskip("aiohttp")
    from aiohttp.test_utils import TestClient, TestServer

    from examples.embed_web_server import PIPELINE, server

    async def main() -> tuple[list[int], int, int]:
        app = server()
        pipeline = app[PIPELINE]

        async def post() -> int:
            async with client.post("/mean", data=b"abc") as response:
                return response.status

        async with TestClient(TestServer(app)) as client:
            pipeline.pause()
            assert await asyncio.to_thread(pipeline.wait_until_paused, PATIENCE)
            asking = [asyncio.create_task(post()) for _ in range(65)]
            done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            refused = [task.result() for task in done]
            pipeline.stop_execution()
            unavailable = {await task for task in waiting}
            return refused, *unavailable, await post()

    assert asyncio.run(main()) == ([429], 503, 503)


INTERRUPTED = """
from headrace import Application
from headrace.operators import FeedOp, ResultsOp

class Waits(Application):
    def compose(self):
        self.add_flow(FeedOp(self, name="frames"), ResultsOp(self, name="found"))

app = Waits()
try:
    with app.running():
        print("waiting", flush=True)
        next(app.results("found"))
except KeyboardInterrupt:
    print(app.outcome.ended_by)
"""


def test_ctrl_c_ends_the_wait_of_a_program_and_its_run(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(INTERRUPTED)
    done = signal_python(signal.SIGINT, program)
    assert done.returncode == 0, done.stderr
    assert "stopped" in done.stdout
