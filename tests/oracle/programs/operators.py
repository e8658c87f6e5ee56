"""Ready operators and allocators, as far as the SDK runs them without a GPU: on system memory."""

from __future__ import annotations

import base64
import tempfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.oracle.sdk import application, operator, program

# Written by headrace's EntityWriter: RECORDED, with the log times 1000, 1100 and so on. tests/video compares it.
BY_HEADRACE_INDEX = zlib.decompress(base64.b64decode(
    "eNp7wcwABlcYUIEPC4Q+zYAqvwEq/hTKn88IoUVYIfQFqHgLE4SugIqfhYqHQO0DAFF7CPg="
))  # fmt: skip
BY_HEADRACE = zlib.decompress(base64.b64decode(
    "eNpjYMAOGHGI17jsn3WNsdR8h9XnKyKM4stg4kxQDNPHDOWzQNmMWDAPklp8duIEjEzMLKxs7BycXNw8vHz8AoJCwiKiYuK4/EGs"
    "n9ih4ulFh7cdnp8K8gYn1CsMSN5kwuEtEOaAqmVhIBccsAcRyCJMZHgFpi4RpJkdyWEgCVY8HkD2BLng339UgO54Jix6mMnwJCyQ"
    "U1JTC2BpDmY2G1pkYYs8AahaDjSaBY1mwp0QgXLMQHWsQPvYUWRYKIi0NJCFXGiRxkTjSJtTytBh88S8DsptAAAeckII"
))  # fmt: skip

RECORDED: list[dict[str, Any]] = [
    {"": np.arange(24, dtype=np.uint8).reshape(2, 4, 3)},
    {"größe": np.array([[1.5, -2.0]], np.float32)},
    {"a": np.arange(5, dtype=np.int64) - 2},
    {"deep": np.arange(8, dtype=np.uint16).reshape(1, 2, 1, 2, 1, 2)},
    {"f": np.array([1e300, -0.0])},
]


def described(message: Any) -> list[Any]:
    """Return what a message of tensors holds, as JSON has it."""
    arrays = {name: np.asarray(tensor) for name, tensor in message.items()}
    return [
        [name, one.dtype.name, list(one.shape), one.ravel().tolist()] for name, one in sorted(arrays.items())
    ]


def taker(sdk: SimpleNamespace, log: list) -> type:
    """Make a class of operators that log the tensors they receive."""
    return operator(sdk, ["in"], [], lambda self, i, o, c: log.append(described(i.receive("in"))))


# Pings.


def _tensor_ping(sdk: SimpleNamespace, log: list, **params: Any) -> None:
    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        message = i.receive("in")
        arrays = {name: np.asarray(tensor) for name, tensor in message.items()}
        log.append([[name, one.dtype.name, list(one.shape)] for name, one in arrays.items()])

    def compose(app: Any) -> None:
        ping = sdk.operators.PingTensorTxOp(app, sdk.CountCondition(app, 2), name="ping", **params)
        app.add_flow(ping, operator(sdk, ["in"], [], take)(app, name="sink"))

    application(sdk, compose).run()


@program
def a_tensor_ping_without_columns_has_channels(sdk: SimpleNamespace, log: list) -> None:
    _tensor_ping(sdk, log, rows=7, columns=None, channels=2, dtype="double")


@program
def a_tensor_ping_into_unknown_memory(sdk: SimpleNamespace, log: list) -> None:
    _tensor_ping(sdk, log, storage_type="paper")


@program
def a_tensor_ping_larger_than_a_block(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        pool = sdk.BlockMemoryPool(app, name="pool", storage_type=2, block_size=63, num_blocks=3)
        ping = sdk.operators.PingTensorTxOp(
            app, sdk.CountCondition(app, 1), name="ping", allocator=pool, rows=8, columns=8
        )
        app.add_flow(ping, sdk.operators.PingTensorRxOp(app, name="sink"))

    application(sdk, compose).run()


# Memory.


def _ask(sdk: SimpleNamespace, body: Any) -> None:
    """Run a function of a pool of three blocks and of an allocator without a limit, inside an operator."""

    def compose(app: Any) -> None:
        pool = sdk.BlockMemoryPool(app, name="pool", storage_type=2, block_size=1024, num_blocks=3)
        unbounded = sdk.UnboundedAllocator(app, name="unbounded")
        asking = operator(sdk, [], [], lambda self, i, o, c: body(pool, unbounded))
        app.add_operator(asking(app, sdk.CountCondition(app, 1), pool, unbounded, name="asking"))

    application(sdk, compose).run()


@program
def a_pool_offers_what_is_larger_than_a_block(sdk: SimpleNamespace, log: list) -> None:
    _ask(sdk, lambda pool, unbounded: log.append([pool.is_available(1025), pool.is_available(3072)]))


@program
def an_exhausted_pool_is_asked_again(sdk: SimpleNamespace, log: list) -> None:
    def body(pool: Any, unbounded: Any) -> None:
        for number in range(4):
            block = pool.allocate(100, sdk.MemoryStorageType.SYSTEM)
            log.append([number, block is not None])

    _ask(sdk, body)


@program
def a_block_larger_than_the_pools(sdk: SimpleNamespace, log: list) -> None:
    def body(pool: Any, unbounded: Any) -> None:
        log.append(pool.allocate(1025, sdk.MemoryStorageType.SYSTEM) is not None)

    _ask(sdk, body)


@program
def a_freed_block_is_there_again(sdk: SimpleNamespace, log: list) -> None:
    def body(pool: Any, unbounded: Any) -> None:
        blocks = [pool.allocate(100, sdk.MemoryStorageType.SYSTEM) for _ in range(3)]
        pool.free(blocks[0])
        log.append(pool.is_available(1))

    _ask(sdk, body)


def _kept(sdk: SimpleNamespace, log: list, keep: int, **need: Any) -> None:
    """Send five tensors of a pool of three blocks to an operator that keeps the last ones."""

    def compose(app: Any) -> None:
        pool = sdk.BlockMemoryPool(app, name="pool", storage_type=2, block_size=64, num_blocks=3)
        ping = sdk.operators.PingTensorTxOp(
            app, sdk.CountCondition(app, 5), sdk.MemoryAvailableCondition(app, allocator=pool, **need),
            name="ping", allocator=pool, rows=8, columns=8,
        )  # fmt: skip
        kept: list = []

        def take(self: Any, i: Any, o: Any, c: Any) -> None:
            kept.append(i.receive("in"))
            del kept[: len(kept) - keep]
            log.append(self.ticks)

        app.add_flow(ping, operator(sdk, ["in"], [], take)(app, name="sink"))

    application(sdk, compose).run()


@program
def memory_that_does_not_come_back_ends_the_run(sdk: SimpleNamespace, log: list) -> None:
    _kept(sdk, log, 9, min_blocks=1)


@program
def memory_is_asked_for_in_bytes(sdk: SimpleNamespace, log: list) -> None:
    _kept(sdk, log, 1, min_bytes=64)


# Recordings.


def _replay(sdk: SimpleNamespace, log: list, folder: str, limit: int = 0, **params: Any) -> None:
    def compose(app: Any) -> None:
        replayer = sdk.operators.VideoStreamReplayerOp(
            app, directory=folder, basename="clip", **{"realtime": False, **params}
        )
        conditions = [sdk.CountCondition(app, limit)] if limit else []
        app.add_flow(replayer, taker(sdk, log)(app, *conditions, name="sink"))

    application(sdk, compose).run()


def _put(folder: str, index: bytes = BY_HEADRACE_INDEX, entities: bytes = BY_HEADRACE) -> None:
    Path(folder, "clip.gxf_index").write_bytes(index)
    Path(folder, "clip.gxf_entities").write_bytes(entities)


@program
def a_recording_is_replayed_at_a_rate(sdk: SimpleNamespace, log: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _put(folder)
        _replay(sdk, log, folder, realtime=True, frame_rate=200.0, count=3)


@program
def a_recording_with_a_foreign_tensor_type(sdk: SimpleNamespace, log: list) -> None:
    spoiled = bytearray(BY_HEADRACE)
    spoiled[40 + 32 + 4] = 99  # the element type of the first tensor
    with tempfile.TemporaryDirectory() as folder:
        _put(folder, entities=bytes(spoiled))
        _replay(sdk, log, folder, ignore_corrupted_entities=False)


@program
def a_recording_without_its_index(sdk: SimpleNamespace, log: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "clip.gxf_entities").write_bytes(BY_HEADRACE)
        _replay(sdk, log, folder)


@program
def a_recording_that_is_missing(sdk: SimpleNamespace, log: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _replay(sdk, log, folder)


@program
def a_recording_without_a_frame(sdk: SimpleNamespace, log: list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _put(folder, b"", b"")
        _replay(sdk, log, folder)
