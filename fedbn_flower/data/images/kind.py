"""Images as a kind of data, classified, segmented or to predict numbers from; where their channels are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Columns, Prepare
from fedbn_flower.clients.examples import Augment
from fedbn_flower.clients.modules.lazy_torch import torch

from ...core.errors import UserError
from ...core.input_spec import InputSpec
from ...core.notes import Note
from ..dataset import KEYS_OF_TEXTS, Decoded, Kind, Rows, Split
from ..labels import Classes
from .augment import CROP_FLIP, NONE, CropFlip, InTurn, parts_of, transform_of
from .moments import MAX_INTENSITY, Moments, Scale, top_of

NOTHING_DECLARED = Classes()

Part = tuple[NDArray, ...]
"""Images, uint8 or uint16 (N, channels, ...), and targets: class numbers, int64 (N,), float32 (N, values), or
masks (N, ...)."""

MOST_CHANNELS = 4
"""Channels of an array of images that has no masks to tell channels from pixels."""
USUAL_CHANNELS = (1, 3)


class Images(Kind):
    """Images, to be classified or segmented, or to predict numbers from.

    ``x`` is uint8 or uint16 (N, channels, height, width), ``y`` int64 class numbers (N,) or float32
    (N, values), or masks, uint8 (N, height, width). They may be volumes, which have a depth before the
    height. Facts: ``classes`` (their number, or that of the values), ``predicts``, ``numbered-here`` (see
    `labels.Classes`), and the training set's ``mean`` and ``std`` per channel, of intensities in [0, 1].
    """

    keys: ClassVar = frozenset(
        {
            "augment",
            "image-column",
            "image-size",
            "label-column",
            "missing-values",
            *KEYS_OF_TEXTS,
            "normalize",
            "spacing",
            "window",
        }
    )

    def spec(self) -> InputSpec:
        return InputSpec(
            self.train["x"].shape[1:], self.facts["classes"], self.facts.get("predicts", "classes")
        )

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        top = top_of(self.train["x"])
        if normalize:
            return ScalePixels(tuple(self.scale.mean), tuple(self.scale.std), top)
        return ScalePixels(top=top)

    @property
    def scale(self) -> Scale:
        return Scale(self.facts["mean"], self.facts["std"])

    def not_integers(self, train: Columns, test: Columns) -> str:
        return f"the data are images, {self.spec()}"

    def moments(self) -> dict[str, NDArray]:
        return Moments.of(self.train["x"]).arrays()

    def augmentation(self, name: str) -> Augment | None:
        if name == NONE:
            return None
        spec = self.spec()
        crop_flip = CropFlip(min(spec.shape[1:]) // 8, masks=spec.predicts == "masks")
        parts = [crop_flip if one == CROP_FLIP else transform_of(one, spec) for one in parts_of(name)]
        return parts[0] if len(parts) == 1 else InTurn(tuple(parts))


@dataclass(frozen=True)
class ScalePixels:
    """Compute ``(image / top - mean) / std`` per channel, float32; ``top`` is 65535 for images of 16 bits."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    top: int = MAX_INTENSITY

    def __call__(self, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        values = columns["x"].float().div_(self.top)
        if any(self.mean) or set(self.std) != {1.0}:
            ones = [1] * (values.dim() - 2)
            mean, std = (torch.tensor(v, device=values.device).view(-1, *ones) for v in (self.mean, self.std))
            values.sub_(mean).div_(std)
        return values, columns["y"]


def images_decoded(
    train: Split, test: Split, classes: Classes = NOTHING_DECLARED, notes: Sequence[Note] = ()
) -> Decoded:
    """Return images and targets as a dataset, with at least ``classes.declared`` classes.

    Of masks that is the number of classes; their values are `masks.numbered`.
    """
    targets = [split.columns["y"] for split in (train, test)]
    axes, scale = targets[0].ndim, Moments.of(train.columns["x"]).scale()
    num_classes = classes.declared
    if axes < 3:
        num_classes = max(num_classes, *(1 + int(y.max(initial=0)) for y in targets))
    facts = {
        "classes": targets[0].shape[1] if axes == 2 else num_classes,
        "predicts": "masks" if axes > 2 else "numbers" if axes == 2 else "classes",
        "mean": list(scale.mean),
        "std": list(scale.std),
        "numbered-here": classes.numbered_here,
    }
    return Decoded("images", train, test, facts, tuple(classes.names), tuple(notes))


def channels_first(images: NDArray, where: str, pixels: tuple[int, ...] = ()) -> tuple[NDArray, list[Note]]:
    """Return images as (N, channels, ...), and a note if another axis was the channels'.

    Parameters
    ----------
    images : NDArray
        (N, height, width), (N, channels, height, width) or (N, height, width, channels), any dtype; or
        volumes, which have a depth before the height, if ``pixels`` says so.
    where : str
        What they are, at the beginning of a message.
    pixels : tuple[int, ...]
        The sizes of an image without its channels, where masks tell them. Without them the channels are the
        first axis or the last of an image, whichever has 1 to `MOST_CHANNELS`; if both have, then the one of
        1 or 3, or else the first.

    Raises
    ------
    UserError
        When no axis can be the channels'.
    """
    sizes = images.shape[1:]
    if sizes == pixels or (not pixels and len(sizes) == 2):
        return images[:, None], []
    found = f"{where}, {images.dtype} {images.shape}"
    if pixels:
        first, last = sizes[1:] == pixels, sizes[:-1] == pixels
    else:
        first, last = (len(sizes) == 3 and 1 <= sizes[axis] <= MOST_CHANNELS for axis in (0, -1))
        if first and last:
            first = sizes[0] in USUAL_CHANNELS or sizes[-1] not in USUAL_CHANNELS
            last = sizes[-1] in USUAL_CHANNELS or sizes[0] not in USUAL_CHANNELS
    if first:
        taken = f"the second axis of {found}, is taken for the channels, not the last"
        return images, [Note("inputs", taken)] if last and not pixels else []
    if not last:
        expected = f"1 to {MOST_CHANNELS} channels before or after the pixels, or none"
        raise UserError(f"{found}, has no axis for the channels; expected {expected}")
    return np.moveaxis(images, -1, 1), [
        Note("inputs", f"the last axis of {found}, is taken for the channels")
    ]


def to_three_channels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat the channel of grey images three times; (N, channels, height, width)."""
    return images if images.shape[1] == 3 else np.repeat(images, 3, axis=1)
