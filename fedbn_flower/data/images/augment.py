"""Augmentation of image batches."""

from __future__ import annotations

from dataclasses import dataclass

from fedbn_flower.clients.modules.lazy_torch import torch
from fedbn_flower.clients.problems.segmentation import VOID


@dataclass(frozen=True)
class CropFlip:
    """Pad with zeros, crop at random, and flip half of the images; drawn for each image on its own.

    He et al. 2016, section 4.2, augment CIFAR-10 so, with a padding of 4 pixels; here it is an eighth of the
    shorter side. The padding is added to the model's input: it is black, or the mean if images are
    standardised. `torchvision.transforms.v2` would draw one crop for a whole batch.

    Random numbers come from torch's CPU generator, whichever device the images are on.

    Parameters
    ----------
    padding : int
        Pixels added on each side.
    masks : bool
        Whether the targets are masks, (b, ...), which are cropped and flipped like their images; what is
        added to them is void.
    """

    padding: int
    masks: bool = False

    def __call__(self, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count, device = len(images), images.device
        axes = images.dim() - 2
        starts = torch.randint(2 * self.padding + 1, (axes, count)).to(device)
        flipped = torch.randint(2, (count, *[1] * (axes + 1))).bool().to(device)

        def moved(pixels: torch.Tensor, fill: int) -> torch.Tensor:
            padded = torch.nn.functional.pad(pixels, (self.padding,) * 2 * axes, value=fill)
            for axis, size in enumerate(pixels.shape[2:], 2):
                padded = padded.unfold(axis, size, 1)
            crops = padded[(torch.arange(count, device=device), slice(None), *starts)]
            return torch.where(flipped, crops.flip(-1), crops)

        masks = moved(targets.unsqueeze(1), VOID).squeeze(1) if self.masks else targets
        return moved(images, 0), masks
