"""The operations of InferenceProcessorOp on the host: text, boxes, files and equalized pictures."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from headrace.vocabulary import choices

Array = np.ndarray[Any, Any]


def print_values(wanted: type, values: Array, where: str) -> None:
    """Print the values of a tensor."""
    if not values.size:
        raise ValueError(f"{where}: the tensor has no values")
    if values.dtype != wanted:
        raise ValueError(f"{where}: the values must be {np.dtype(wanted)}, not {values.dtype}")
    print(", ".join(f"{value:g}" if wanted is np.float32 else str(value) for value in values.reshape(-1)))


def print_likelier(one: str, other: str, values: Array, where: str) -> None:
    """Print which of two texts the values stand for."""
    which, confidence = _likelier(values, where)
    print(f"{(one, other)[which]}. Confidence: {confidence:g}")


def _likelier(values: Array, where: str) -> tuple[int, float]:
    """Return which of two classes is likelier, and its confidence: the sigmoid of its score."""
    if values.size != 2 or values.dtype != np.float32:
        raise ValueError(
            f"{where}: a binary classification has two scores of float32, not {values.size} of {values.dtype}"
        )
    with np.errstate(over="ignore"):
        first, second = (1 / (1 + np.exp(-values.reshape(-1).astype(np.float64)))).tolist()
    return (0, first) if first > second else (1, second)


@dataclass(slots=True)
class BinaryResults:
    """A CSV file of binary classifications, made when the first one is written."""

    application: str
    columns: Sequence[str]
    _file: IO[str] | None = None

    def write(self, values: Array, where: str) -> None:
        """Write a line: 1 and 0, or 0 and 1, and the confidence."""
        which, confidence = _likelier(values, where)
        if self._file is None:
            root = Path(os.environ.get("HOLOSCAN_ANALYTICS_DATA_DIRECTORY") or ".")
            folder = root / self.application / datetime.now().strftime("%Y%m%d%H%M%S%f")
            folder.mkdir(parents=True)
            name = os.environ.get("HOLOSCAN_ANALYTICS_DATA_FILE_NAME") or "data.csv"
            self._file = (folder / name).open("w", newline="")
            csv.writer(self._file).writerow(self.columns)
        csv.writer(self._file).writerow([1 - which, which, f"{confidence:g}"])
        self._file.flush()  # a line that was written survives the end of the process

    def close(self) -> None:
        """Close the file; the next result begins another."""
        if self._file is not None:
            self._file.close()
            self._file = None


def equalize(values: Array, where: str) -> Array:
    """Return a picture (rows, columns, 3) with an even histogram, from one channel (1, rows, columns)."""
    if values.dtype != np.float32 or values.ndim != 3 or values.shape[0] != 1 or not values.size:
        raise ValueError(
            f"{where}: the tensor must be float32 of the shape (1, rows, columns), not {values.dtype} of the shape "
            f"{values.shape}"
        )
    values = values.astype(np.float64)  # in single precision the difference of large numbers has no value
    least, most = float(values.min()), float(values.max())
    if not np.isfinite(least) or not np.isfinite(most):
        raise ValueError(f"{where}: the values must be finite")
    spread = most - least
    # One level where all values are equal.
    levels = (255 * ((values[0] - least) / spread) if spread else np.zeros_like(values[0])).astype(np.uint8)
    counts = np.bincount(levels.reshape(-1), minlength=256).cumsum()
    lowest, total = counts[counts > 0].min(), values.size
    table = np.zeros(256, np.uint8)
    if total > lowest:
        table = np.clip(255.0 * (counts - lowest) / (total - lowest), 0, 255).astype(np.uint8)
    return np.repeat(table[levels][..., None], 3, axis=2)


@dataclass(slots=True)
class Boxes:
    """The settings by which boxes or masks of the objects that a network found are drawn."""

    tensors: dict[str, int]
    labels: list[str]
    width: int
    height: int
    threshold: float
    counts: dict[str, int]
    colours: dict[str, tuple[float, ...]]

    def draw(self, *given: Any) -> dict[str, Array]:
        """Return the tensors for a viewer: boxes and the places of their texts, or one mask.

        It takes the arrays, of which `tensors` has the numbers, and the place for errors.
        """
        *arrays, where = given
        part = {role: arrays[number] for role, number in self.tensors.items()}
        scores, labels = part["scores"].reshape(-1), part["labels"].reshape(-1)
        if len(labels) < len(scores):
            raise ValueError(f"{where}: there are {len(scores)} scores and {len(labels)} labels")
        good = np.flatnonzero(scores > self.threshold)
        if labels.dtype.kind not in "iu" and not np.isfinite(labels[good]).all():
            raise ValueError(f"{where}: the labels must be whole numbers, not {labels[good].tolist()}")
        found = [(index, self._object(int(labels[index]))) for index in good]
        if "masks" in self.tensors:
            return {"holoviz_masks": self._mask(part["masks"], found, len(scores), where)}
        boxes = part["boxes"]
        if boxes.size < 4 * len(scores):
            raise ValueError(f"{where}: {len(scores)} scores need 4 numbers each in boxes, not {boxes.size}")
        boxes = boxes.reshape(-1)[: 4 * len(scores)].reshape(-1, 4) / np.array(
            [self.width, self.height, self.width, self.height], np.float32
        )
        drawn: dict[str, Array] = {}
        found.sort(key=lambda item: -scores[item[0]])  # the best ones where there are too many
        for name, count in self.counts.items():
            best = [index for index, other in found if other == name][:count]
            for number in range(count):
                corners, text = np.zeros((1, 2, 2), np.float32), np.array([[[1.1, 1.1, 0.05]]], np.float32)
                if number < len(best):
                    box = boxes[best[number]]
                    corners[0] = box.reshape(2, 2)
                    text[0, 0, :2] = box[2], box[1]
                drawn |= {f"{name}{number}": corners, f"{name}text{number}": text}
        return drawn

    @property
    def results(self) -> list[str]:
        """The names of the tensors that are drawn."""
        if "masks" in self.tensors:
            return ["holoviz_masks"]
        numbers = [(name, number) for name, count in self.counts.items() for number in range(count)]
        return [f"{name}{text}{number}" for name, number in numbers for text in ("", "text")]

    def _object(self, label: int) -> str:
        """Return the name that the configuration has for a label, or else "object"."""
        name = self.labels[label] if 0 <= label < len(self.labels) else ""
        return name if name in self.counts else "object"

    def _mask(self, masks: Array, found: list[tuple[Any, str]], count: int, where: str) -> Array:
        size = self.height * self.width
        if masks.size != count * size:
            raise ValueError(
                f"{where}: {count} scores need as many masks of {self.height}×{self.width}, not {masks.size} "
                "numbers; display in the configuration gives the size"
            )
        masks = masks.reshape(count, self.height, self.width)
        picture = np.zeros((self.height, self.width, 4), np.float32)
        for index, name in found:
            picture[masks[index] > self.threshold] = self.colours.get(name, (1.0, 1.0, 1.0, 1.0))
        return picture


def read_boxes(path: str, tensors: list[str], where: str) -> Boxes:
    """Return what a configuration file says of boxes, for these tensors."""
    import yaml

    if not path:
        raise ValueError(f"{where}: generate_boxes needs config_path, a YAML file")
    roles = _roles(tensors, where)
    where = f"{where}: the file {path!r}"
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{where} cannot be read as YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("generate_boxes"), dict):
        raise ValueError(f"{where} has no section generate_boxes")
    where = f"{where}: generate_boxes"
    params, display, objects, colours = (
        _part(content["generate_boxes"], name, where) for name in ("params", "display", "objects", "color")
    )
    if "label_file" not in params:
        raise ValueError(f"{where}: params: there is no label_file")
    label_file = Path(path).parent / str(params["label_file"])
    try:
        labels = label_file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{where}: the label file {str(label_file)!r} cannot be read: {error}") from error
    boxes = Boxes(
        roles,
        labels,
        _number(display, "width", 1920, int, f"{where}: display"),
        _number(display, "height", 1080, int, f"{where}: display"),
        _number(params, "threshold", 0.75, float, f"{where}: params"),
        {str(name): _number(objects, name, 0, int, f"{where}: objects") for name in objects},
        {str(name): _colour(name, colour, where) for name, colour in colours.items()},
    )
    if boxes.width < 1 or boxes.height < 1:
        raise ValueError(
            f"{where}: display: width and height must be positive, not {boxes.width} and {boxes.height}"
        )
    return boxes


def _part(section: dict[Any, Any], name: str, where: str) -> dict[Any, Any]:
    """Return a part of the section, which may be left out."""
    part = section.get(name)
    if part is not None and not isinstance(part, dict):
        raise ValueError(f"{where}: {name} must be names with values, not {part!r:.100}")
    return part or {}


def _number(part: dict[Any, Any], name: Any, default: Any, kind: type, where: str) -> Any:
    """Return a number of a part of the section."""
    value = part.get(name, default)
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, bool) or number != number:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"{where}: {name} must be {what}, not {value!r:.100}")
    return number


def _colour(name: Any, colour: Any, where: str) -> tuple[float, ...]:
    """Return a colour with its alpha."""
    try:
        parts = tuple(float(part) for part in str(colour).split())
    except ValueError:
        parts = ()
    if len(parts) not in (3, 4):
        raise ValueError(
            f"{where}: color: {name} must be 3 or 4 numbers with spaces between them, such as 1 0 0 0.5, not "
            f"{colour!r:.100}"
        )
    return (*parts, 1.0)[:4]


def _roles(tensors: list[str], where: str) -> dict[str, int]:
    """Return which tensor holds boxes, scores, labels and masks, by the words in their names."""
    roles: dict[str, int] = {}
    for role in ("scores", "labels", "masks", "boxes"):
        fitting = [name for name in tensors if role in name]
        if len(fitting) > 1:
            raise ValueError(f"{where}: {choices(fitting)} have the word {role!r} in their names; one must")
        if fitting:
            roles[role] = tensors.index(fitting[0])
    if not {"scores", "labels"} <= roles.keys() or roles.keys().isdisjoint(("boxes", "masks")):
        raise ValueError(
            f"{where}: generate_boxes takes tensors with the words scores, labels, and boxes or masks, in their "
            f"names, joined by colons; there is {choices(tensors)}"
        )
    return roles
