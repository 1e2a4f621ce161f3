"""Train on random parts of images, for volumes that do not fit into memory as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from fedbn_flower.clients.examples import Augment
from fedbn_flower.clients.modules.lazy_torch import torch
from fedbn_flower.clients.problems.segmentation import VOID

from ...core.errors import not_allowed
from ...core.input_spec import InputSpec
from .sampling import Sampling

KEY = "patch-size"


def patch_sizes(given: int | str, spec: InputSpec) -> tuple[int, ...]:
    """Return the sizes of the patches on which a run trains; none if it trains on whole images.

    Raises
    ------
    UserError
        Where the data are no images with masks, or are smaller.
    """
    if not given:
        return ()
    sizes = spec.shape[1:]
    if spec.predicts != "masks":
        raise not_allowed(KEY, given, f"0 without masks: an example is {spec}")
    found = Sampling(given).sizes(len(sizes))
    if any(patch > size for patch, size in zip(found, sizes, strict=True)):
        raise not_allowed(KEY, given, f"at most {'x'.join(map(str, sizes))}, the size of an image")
    return found


@dataclass(frozen=True)
class RandomPatches:
    """Cut a patch of each image and its mask, drawn from torch's generator.

    One of two lies around a pixel of the foreground, if there is one, as Isensee et al. 2021 (nnU-Net,
    supplementary note 4) take one of three; it is drawn among all of these. The others lie anywhere.

    Parameters
    ----------
    sizes : tuple[int, ...]
        Of a patch.
    before : Augment, optional
        What is done to the whole images first.
    """

    sizes: tuple[int, ...]
    before: Augment | None = None

    def __call__(self, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.before:
            images, targets = self.before(images, targets)
        parts = [self._cut(image, mask) for image, mask in zip(images, targets, strict=True)]
        return torch.stack([image for image, _ in parts]), torch.stack([mask for _, mask in parts])

    def _cut(self, image: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rooms = [size - patch for size, patch in zip(mask.shape, self.sizes, strict=True)]
        starts = [int(torch.randint(room + 1, ())) for room in rooms]
        around, chance = (float(value) for value in torch.rand(2))
        inside = ((mask > 0) & (mask != VOID)).nonzero() if around < 1 / 2 else mask.new_zeros(0)
        if len(inside):
            centre = inside[int(chance * len(inside))].tolist()
            starts = [
                min(max(0, place - patch // 2), room)
                for place, patch, room in zip(centre, self.sizes, rooms, strict=True)
            ]
        place = tuple(slice(start, start + size) for start, size in zip(starts, self.sizes, strict=True))
        return image[(slice(None), *place)], mask[place]
