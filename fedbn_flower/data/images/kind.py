"""Images as a kind of data: each is classified or segmented, or numbers are predicted from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import NDArray

from fedbn_flower.clients import Columns, Prepare
from fedbn_flower.clients.examples import Augment
from fedbn_flower.clients.modules.lazy_torch import torch

from ...core.input_spec import InputSpec
from ..dataset import KEYS_OF_TEXTS, Decoded, Kind, Rows, Split
from ..labels import Classes
from ..notes import Note
from .augment import CROP_FLIP, NONE, CropFlip, InTurn, parts_of, transform_of
from .moments import MAX_INTENSITY, Moments, top_of

NOTHING_DECLARED = Classes()

Part = tuple[NDArray, ...]
"""Images, uint8 or uint16 (N, channels, ...), and targets: class numbers, int64 (N,), float32 (N, values), or
masks (N, ...)."""


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
            return ScalePixels(tuple(self.facts["mean"]), tuple(self.facts["std"]), top)
        return ScalePixels(top=top)

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
