"""ModelSetting: what the maps of an InferenceOp say about one model.

The operator's parameters are maps from models to values. Here they are checked, and turned into one record for each
model. Values come from YAML files, so a number may be text, and older files give a plain string for a list of one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.brief import brief
from headrace.core.errors import ParameterError, choices
from headrace.inference.model import BACKENDS, TensorSpec

Profile = tuple[tuple[tuple[int, int, int], ...], ...]
"""For each input, a (least, usual, greatest) triple for each of its dynamic extents."""


@dataclass(slots=True)
class ModelSetting:
    """One model of an operator.

    Attributes
    ----------
    every
        It runs on the first frame and on each `every`-th frame after it.
    is_active
        Whether it runs at all; changed by messages.
    device_id
        The GPU that it is to run on; None for that of the operator's stream.
    profile
        What `trt_opt_profile` says, as it was given.
    """

    name: str
    path: str
    backend: str
    inputs: list[str]
    outputs: list[str]
    every: int = 1
    is_active: bool = True
    device_id: int | None = None
    dla_core: int = -1
    profile: Any = None


def read_settings(owner: str, given: Mapping[str, Any]) -> list[ModelSetting]:
    """Return the settings of each model, in the order of `model_path_map`.

    Parameters
    ----------
    owner
        The operator, for errors.
    given
        The operator's parameters by name.
    """
    for key in ("model_path_map", *_TENSORS):
        if not isinstance(given[key], Mapping):
            raise ParameterError(
                f"{owner}: {key} must be a mapping from the names of models, not {given[key]!r}"
            )
    models = given["model_path_map"]
    if not models:
        raise ParameterError(f"{owner}: model_path_map is empty: it maps the name of each model to its file")
    for key in (*_TENSORS, *_NUMBERS, "backend_map", "trt_opt_profile"):
        for name in given[key] if isinstance(given[key], Mapping) else ():
            if name not in models:
                raise ParameterError(
                    f"{owner}: {key} has a model {name!r}; model_path_map has {choices(models, name)}"
                )
    settings = [_setting(owner, given, name) for name in models]
    _check_names(owner, given, settings)
    return settings


def read_names(owner: str, key: str, value: Any, warn: bool = True) -> list[str]:
    """Return a list of names of tensors; a plain text stands for a list of one, with a warning."""
    if isinstance(value, str):
        if warn:
            warnings.warn(f"{owner}: {key} is the text {value!r}; write a list: [{value!r}]", stacklevel=2)
        value = [value]
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
        raise ParameterError(f"{owner}: {key} must be a list of names of tensors, not {brief(value)}")
    return list(value)


def read_profile(owner: str, setting: ModelSetting, inputs: Sequence[TensorSpec]) -> Profile:
    """Return what `trt_opt_profile` says about a model, for its dynamic extents; empty if it says nothing."""
    given = setting.profile
    if given is None:
        return ()
    where = f"{owner}: trt_opt_profile of model {setting.name!r}"
    dynamic = [[extent for extent in spec.shape or () if not isinstance(extent, int)] for spec in inputs]
    is_triple = isinstance(given, (list, tuple)) and [type(part) for part in given] == [int] * 3
    if is_triple and all(len(extents) <= 1 for extents in dynamic):
        # The older form: one triple, for the size of the batch.
        return tuple(_checked(where, [tuple(given)] * len(extents)) for extents in dynamic)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or len(texts) != len(inputs):
        raise ParameterError(
            f"{where} must be a list with one text for each input ({choices([spec.name for spec in inputs])}), "
            f'such as "1,4,8" for one dynamic extent that is 1 to 8 and usually 4, not {brief(given)}'
        )
    profile = []
    for spec, text, extents in zip(inputs, texts, dynamic, strict=True):
        numbers = [part for part in str(text).replace(" ", "").split(",") if part]
        if not all(part.isdigit() for part in numbers) or len(numbers) != 3 * len(extents):
            raise ParameterError(
                f"{where}: {text!r} must be min,opt,max for each dynamic extent of input {spec.name!r}: it is "
                f"{spec}, so {3 * len(extents)} numbers"
            )
        values = map(int, numbers)
        profile.append(_checked(where, zip(values, values, values, strict=True)))
    return tuple(profile)


def _checked(where: str, triples: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    checked = tuple(triples)
    for least, usual, greatest in checked:
        if not 0 < least <= usual <= greatest:
            raise ParameterError(f"{where}: {least},{usual},{greatest} must be min <= opt <= max, from 1 on")
    return checked


def _setting(owner: str, given: Mapping[str, Any], name: str) -> ModelSetting:
    """Return what the maps say about one model."""
    for key, what in _TENSORS.items():
        if name not in given[key]:
            raise ParameterError(
                f"{owner}: {key} has no entry for model {name!r}: a list of its {what} tensors"
            )
    inputs, outputs = (read_names(owner, f"{key} of model {name!r}", given[key][name]) for key in _TENSORS)
    key, backend = f"backend_map of model {name!r}", given["backend_map"].get(name)
    if backend is None:
        key, backend = "backend", given["backend"]
    if backend is None:
        raise ParameterError(
            f"{owner}: model {name!r} has no backend: give backend=, or an entry in backend_map"
        )
    if backend not in BACKENDS:
        raise ParameterError(f"{owner}: {key} must be one of {choices(BACKENDS)}, not {backend!r}")
    profiles = given["trt_opt_profile"]
    setting = ModelSetting(
        name,
        str(given["model_path_map"][name]),
        backend,
        inputs,
        outputs,
        dla_core=given["dla_core"],
        profile=profiles.get(name) if isinstance(profiles, Mapping) else profiles or None,
    )
    for key, (field, least, greatest) in _NUMBERS.items():
        value = given[key].get(name)
        if value is not None:
            setattr(setting, field, _number(f"{owner}: {key} of model {name!r}", value, least, greatest))
    return setting


def _number(where: str, value: Any, least: int, greatest: int | None) -> int:
    """Return an integer of a map, which may be text, or a list of one."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        (value,) = value
    text = str(int(value)) if isinstance(value, bool) else str(value).strip()
    if text.lstrip("-").isdigit() and int(text) >= least and (greatest is None or int(text) <= greatest):
        return int(text)
    wanted = f"an integer from {least} on" if greatest is None else f"{least} or {greatest}"
    raise ParameterError(f"{where} must be {wanted}, not {brief(value)}")


def _check_names(owner: str, given: Mapping[str, Any], settings: list[ModelSetting]) -> None:
    """Raise for names of tensors that two models send, or that the lists of names do not agree with."""
    wanted = read_names(owner, "in_tensor_names", given["in_tensor_names"])
    senders: dict[str, str] = {}
    for setting in settings:
        for tensor in setting.outputs:
            if tensor in senders:
                raise ParameterError(
                    f"{owner}: inference_map has the tensor {tensor!r} of model {senders[tensor]!r} and of model "
                    f"{setting.name!r}: each tensor of the message needs a name of its own"
                )
            senders[tensor] = setting.name
        for tensor in setting.inputs:
            if wanted and tensor not in wanted:
                raise ParameterError(
                    f"{owner}: in_tensor_names lacks {tensor!r}, which pre_processor_map of model "
                    f"{setting.name!r} names; without in_tensor_names, the names are those of the map"
                )
    for tensor in read_names(owner, "out_tensor_names", given["out_tensor_names"], warn=False):
        if tensor not in senders:
            raise ParameterError(
                f"{owner}: out_tensor_names has {tensor!r}; inference_map has {choices(senders, tensor)}"
            )


# The maps of tensors, and which tensors of a model they have.
_TENSORS = {"pre_processor_map": "input", "inference_map": "output"}
# The maps of numbers: the field of a setting, and the least and the greatest number.
_NUMBERS: dict[str, tuple[str, int, int | None]] = {
    "device_map": ("device_id", 0, None),
    "dla_core_map": ("dla_core", -1, None),
    "temporal_map": ("every", 1, None),
    "activation_map": ("is_active", 0, 1),
}
