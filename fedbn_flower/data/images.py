"""Images in classes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clients import Prepare

from ..errors import not_allowed
from ..models.spec import InputSpec
from .dataset import Decoded, Kind, Rows

CHUNK = 4096  # a float copy of a whole training set would be eight times its size

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


class Images(Kind):
    """``x`` uint8 (N, channels, height, width), ``y`` class numbers; facts: the number of ``classes``, and
    the training set's ``mean`` and ``std`` per channel, of intensities in [0, 1]."""

    keys: ClassVar = frozenset({"image-column", "image-size", "normalize"})

    def spec(self) -> InputSpec:
        return InputSpec(self.train["x"].shape[1:], self.facts["classes"])

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        if normalize:
            return Scaled(tuple(self.facts["mean"]), tuple(self.facts["std"]))
        return Scaled()


@dataclass(frozen=True)
class Scaled:
    """An image becomes ``(image / 255 - mean) / std``, float32, per channel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        values = columns["x"].float().div_(255)
        if any(self.mean) or set(self.std) != {1.0}:
            mean, std = (torch.tensor(v, device=values.device).view(-1, 1, 1) for v in (self.mean, self.std))
            values.sub_(mean).div_(std)
        return values, columns["y"]


def images_decoded(
    train: Part,
    test: Part,
    classes: int = 0,
    groups: tuple[NDArray[np.str_], NDArray[np.str_]] | None = None,
    class_names: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Decoded:
    """Images and class numbers as a dataset; at least so many classes as are declared."""
    x = train[0]
    chunks = np.array_split(x, max(1, len(x) // CHUNK))
    sums = sum(c.sum((0, 2, 3), dtype=np.float64) for c in chunks)
    squares = sum(np.square(c, dtype=np.float64).sum((0, 2, 3)) for c in chunks)
    count = x[:, 0].size
    mean = sums / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    facts = {
        "classes": max(classes, *(1 + int(labels.max(initial=0)) for _, labels in (train, test))),
        "mean": (mean / 255).tolist(),
        "std": (np.where(std > 0, std, 255) / 255).tolist(),
    }
    return Decoded(
        "images",
        {"x": train[0], "y": train[1]},
        {"x": test[0], "y": test[1]},
        facts,
        groups,
        tuple(class_names),
        tuple(notes),
    )


def stacked_images(column: Sequence[Any], size: int) -> NDArray[np.uint8]:
    """Decode images to uint8 (N, channels, height, width): one channel if the first image has one."""
    mode = "L" if column[0].mode in ("1", "L", "LA") else "RGB"
    shape = (size, size) if size else column[0].size[::-1]
    images = np.empty((len(column), 1 if mode == "L" else 3, *shape), np.uint8)
    pictures: Iterable[Any] = column
    for i, image in enumerate(pictures):
        if image.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"):
            raise OSError(f"image {i} has the mode {image.mode}, not 8 bits a channel")
        converted = image.convert(mode)
        if size:
            converted = converted.resize((size, size))
        if converted.size[::-1] != shape:
            raise not_allowed(
                "image-size", 0, f"a number of pixels, since {converted.size} and {shape[::-1]} differ"
            )
        pixels = np.asarray(converted)
        images[i] = pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)
    return images
