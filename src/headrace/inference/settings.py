"""ModelSetting: what the maps of an InferenceOp say about one model.

The operator's parameters are maps from models to values. Here they are checked, and turned into one record for each
model. Values come from YAML files, so a number may be text, and older files give a plain string for a list of one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core.errors import ParameterError, choices
from headrace.inference.loading import BACKENDS
from headrace.inference.tensor_spec import TensorSpec

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
    for key in ("model_path_map", "pre_processor_map", "inference_map"):
        if not isinstance(given[key], Mapping):
            raise ParameterError(
                f"{owner}: {key} must be a mapping from the names of models, not {given[key]!r}"
            )
    reader = _Reader(owner, given)
    paths = given["model_path_map"]
    if not paths:
        raise reader.error("model_path_map is empty: it maps the name of each model to its file")
    reader.check_models()
    settings = [reader.setting(name) for name in paths]
    reader.check_names(settings)
    return settings


def read_names(owner: str, key: str, value: Any, warn: bool = True) -> list[str]:
    """Return a list of names of tensors; a plain text stands for a list of one, with a warning."""
    if isinstance(value, str):
        if warn:
            warnings.warn(f"{owner}: {key} is the text {value!r}; write a list: [{value!r}]", stacklevel=2)
        value = [value]
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
        raise ParameterError(f"{owner}: {key} must be a list of names of tensors, not {value!r}")
    return list(value)


def read_profile(owner: str, setting: ModelSetting, inputs: Sequence[TensorSpec]) -> Profile:
    """Return what `trt_opt_profile` says about a model, for its dynamic extents; empty if it says nothing."""
    given = setting.profile
    if given is None:
        return ()
    where = f"{owner}: trt_opt_profile of model {setting.name!r}"
    dynamic = [[extent for extent in spec.shape or () if not isinstance(extent, int)] for spec in inputs]
    if _is_triple(given) and all(len(extents) <= 1 for extents in dynamic):
        # The older form: one triple, for the size of the batch.
        return tuple(_checked(where, [given] * len(extents)) for extents in dynamic)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or len(texts) != len(inputs):
        raise ParameterError(
            f"{where} must be a list with one text for each input ({choices([spec.name for spec in inputs])}), "
            f'such as "1,4,8" for one dynamic extent that is 1 to 8 and usually 4, not {given!r}'
        )
    profile = []
    for spec, text, extents in zip(inputs, texts, dynamic, strict=True):
        numbers = [part for part in str(text).replace(" ", "").split(",") if part]
        if not all(part.isdigit() for part in numbers) or len(numbers) != 3 * len(extents):
            raise ParameterError(
                f"{where}: {text!r} must be min,opt,max for each dynamic extent of input {spec.name!r}: it is "
                f"{spec}, so {3 * len(extents)} numbers"
            )
        values = [int(part) for part in numbers]
        profile.append(_checked(where, [values[at : at + 3] for at in range(0, len(values), 3)]))
    return tuple(profile)


def _checked(where: str, triples: Sequence[Sequence[int]]) -> tuple[tuple[int, int, int], ...]:
    checked = []
    for least, usual, greatest in triples:
        if not 0 < least <= usual <= greatest:
            raise ParameterError(f"{where}: {least},{usual},{greatest} must be min <= opt <= max, from 1 on")
        checked.append((least, usual, greatest))
    return tuple(checked)


def _is_triple(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and len(given) == 3 and all(type(part) is int for part in given)


class _Reader:
    """Reads the maps, for the errors of one operator."""

    def __init__(self, owner: str, given: Mapping[str, Any]) -> None:
        self.owner = owner
        self.given = given
        self.models: list[str] = list(given["model_path_map"])

    def error(self, text: str) -> ParameterError:
        return ParameterError(f"{self.owner}: {text}")

    def check_models(self) -> None:
        """Raise for a model that a map has and `model_path_map` has not, or that lacks its tensors."""
        for key in _MAPS:
            for name in self._entries(key):
                if name not in self.models:
                    raise self.error(
                        f"{key} has a model {name!r}; model_path_map has {choices(self.models, name)}"
                    )
        for key in ("pre_processor_map", "inference_map"):
            for name in self.models:
                if name not in self.given[key]:
                    what = "input" if key == "pre_processor_map" else "output"
                    raise self.error(f"{key} has no entry for model {name!r}: a list of its {what} tensors")

    def _entries(self, key: str) -> Any:
        value = self.given[key]
        return value if isinstance(value, Mapping) else ()

    def setting(self, name: str) -> ModelSetting:
        given = self.given
        profiles = given["trt_opt_profile"]
        return ModelSetting(
            name,
            str(given["model_path_map"][name]),
            self._backend(name),
            self._names("pre_processor_map", name),
            self._names("inference_map", name),
            every=self._number("temporal_map", name, 1, least=1) or 1,
            is_active=bool(self._number("activation_map", name, 1, least=0, greatest=1)),
            device_id=self._number("device_map", name, None, least=0),
            dla_core=self._number("dla_core_map", name, given["dla_core"], least=-1) or 0,
            profile=profiles.get(name) if isinstance(profiles, Mapping) else profiles or None,
        )

    def _backend(self, name: str) -> str:
        chosen = self.given["backend_map"].get(name)
        key, backend = (
            (f"backend_map of model {name!r}", chosen)
            if chosen is not None
            else ("backend", self.given["backend"])
        )
        if backend is None:
            raise self.error(f"model {name!r} has no backend: give backend=, or an entry in backend_map")
        if backend not in BACKENDS:
            raise self.error(f"{key} must be one of {choices(BACKENDS)}, not {backend!r}")
        return str(backend)

    def _names(self, key: str, name: str) -> list[str]:
        return read_names(self.owner, f"{key} of model {name!r}", self.given[key][name])

    def _number(
        self, key: str, name: str, default: int | None, least: int, greatest: int | None = None
    ) -> int | None:
        value = self.given[key].get(name)
        if value is None:
            return default
        if isinstance(value, (list, tuple)) and len(value) == 1:
            (value,) = value
        text = str(int(value)) if isinstance(value, bool) else str(value).strip()
        if text.lstrip("-").isdigit() and int(text) >= least and (greatest is None or int(text) <= greatest):
            return int(text)
        wanted = f"an integer from {least} on" if greatest is None else f"{least} or {greatest}"
        raise self.error(f"{key} of model {name!r} must be {wanted}, not {value!r}")

    def check_names(self, settings: list[ModelSetting]) -> None:
        """Raise for names of tensors that two models send, or that the lists of names do not agree with."""
        senders: dict[str, str] = {}
        for setting in settings:
            for tensor in setting.outputs:
                if tensor in senders:
                    raise self.error(
                        f"inference_map has the tensor {tensor!r} of model {senders[tensor]!r} and of model "
                        f"{setting.name!r}: each tensor of the message needs a name of its own"
                    )
                senders[tensor] = setting.name
        wanted = read_names(self.owner, "in_tensor_names", self.given["in_tensor_names"])
        for setting in settings:
            for tensor in setting.inputs:
                if wanted and tensor not in wanted:
                    raise self.error(
                        f"in_tensor_names lacks {tensor!r}, which pre_processor_map of model {setting.name!r} "
                        "names; without in_tensor_names, the names are those of the map"
                    )
        for tensor in read_names(self.owner, "out_tensor_names", self.given["out_tensor_names"], warn=False):
            if tensor not in senders:
                raise self.error(
                    f"out_tensor_names has {tensor!r}; inference_map has {choices(senders, tensor)}"
                )


_MAPS = (
    "pre_processor_map",
    "inference_map",
    "device_map",
    "dla_core_map",
    "temporal_map",
    "activation_map",
    "backend_map",
    "trt_opt_profile",
)
