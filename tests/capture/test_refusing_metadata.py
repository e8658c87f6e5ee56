"""Metadata of an operator that is recorded: every way to use it is refused, since it belongs to one frame."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from headrace.capture.direct_compute import RefusingMetadata
from headrace.capture.refusal import Refusal
from headrace.core.metadata import MetadataDictionary


def refuse() -> NoReturn:
    raise Refusal("operator 'blur' uses its metadata")


def merged(metadata: Any) -> None:
    metadata |= {"a": 1}


def deleted(metadata: Any) -> None:
    del metadata["a"]


def set_item(metadata: Any) -> None:
    metadata["a"] = 1


USES: dict[str, Callable[[Any], object]] = {
    "get item": lambda metadata: metadata["a"],
    "set item": set_item,
    "delete": deleted,
    "in": lambda metadata: "a" in metadata,
    "iterate": lambda metadata: list(metadata),
    "reversed": lambda metadata: list(reversed(metadata)),
    "length": len,
    "truth": bool,
    "equal": lambda metadata: metadata == {},
    "unequal": lambda metadata: metadata != {},
    "or": lambda metadata: metadata | {"a": 1},
    "or from the right": lambda metadata: {"a": 1} | metadata,
    "update by |=": merged,
    "dict": dict,
    "unpacked": lambda metadata: {**metadata},
    "as arguments": lambda metadata: dict(**metadata),
    "json": json.dumps,
    "copy": lambda metadata: metadata.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "get": lambda metadata: metadata.get("a"),
    "pop": lambda metadata: metadata.pop("a", None),
    "popitem": lambda metadata: metadata.popitem(),
    "setdefault": lambda metadata: metadata.setdefault("a", 1),
    "update": lambda metadata: metadata.update(a=1),
    "merge": lambda metadata: metadata.merge({"a": 1}),
    "insert": lambda metadata: metadata.insert({"a": 1}),
    "swap": lambda metadata: metadata.swap({}),
    "type_dict": lambda metadata: metadata.type_dict(),
    "set": lambda metadata: metadata.set("a", 1),
    "keys": lambda metadata: metadata.keys(),
    "items": lambda metadata: metadata.items(),
    "values": lambda metadata: metadata.values(),
    "clear": lambda metadata: metadata.clear(),
    "has_key": lambda metadata: metadata.has_key("a"),
    "erase": lambda metadata: metadata.erase("a"),
    "size": lambda metadata: metadata.size(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_use_is_refused(use: Callable[[Any], object]) -> None:
    compute: Any = SimpleNamespace(refuse_metadata=refuse)
    with pytest.raises(Refusal, match="operator 'blur' uses its metadata"):
        use(RefusingMetadata(compute))


def test_every_method_of_metadata_is_refused() -> None:
    left = {"__init__", "__slots__", "__doc__", "__module__", "fromkeys", "__reduce__"}
    methods = {name for name in vars(MetadataDictionary) if name not in left}
    methods -= {"node", "owner", "policy", "__annotations__", "__orig_bases__", "__parameters__"}
    methods -= {
        "is_by_port",
        "is_joined",
        "receive",
        "receive_batch",
    }  # for the runtime, which passes by a segment
    assert methods <= set(vars(RefusingMetadata))
