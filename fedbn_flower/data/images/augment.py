"""Augmentation of image batches."""

from __future__ import annotations

from dataclasses import dataclass

from fedbn_flower.clients.modules.lazy_torch import torch


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
    """

    padding: int

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        count, _, height, width = images.shape
        device = images.device
        tops, lefts = torch.randint(2 * self.padding + 1, (2, count)).to(device)
        flipped = torch.randint(2, (count, 1, 1, 1)).bool().to(device)
        padded = torch.nn.functional.pad(images, (self.padding,) * 4)
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)
        crops = windows[torch.arange(count, device=device), :, tops, lefts]
        return torch.where(flipped, crops.flip(3), crops)
