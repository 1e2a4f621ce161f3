"""Augmentation of image batches."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CropFlip:
    """A random crop of the image in a frame of zeros, mirrored half of the time; each image by itself.

    As He et al. 2016, section 4.2, augment CIFAR-10: a frame of 4 pixels there, of an eighth of the shorter
    side here. The frame is added to what the model is given, so it is black, or the mean where images are
    standardised. `torchvision.transforms.v2` draws one crop for a whole batch.

    The draws are from torch's generator of the CPU, whatever device the images are on.

    Parameters
    ----------
    padding : int
        Pixels of the frame on each side.
    """

    padding: int

    def __call__(self, images: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        places = 2 * self.padding + 1
        tops, lefts = torch.randint(places, (2, count, 1))
        mirrored = torch.randint(2, (count, 1)).bool()
        rows = tops + torch.arange(height)
        columns = lefts + torch.where(mirrored, torch.arange(width).flip(0), torch.arange(width))
        framed = torch.nn.functional.pad(images, (self.padding,) * 4)
        index = (
            torch.arange(count).view(-1, 1, 1, 1),
            torch.arange(channels).view(1, -1, 1, 1),
            rows.view(count, 1, height, 1),
            columns.view(count, 1, 1, width),
        )
        return framed[tuple(part.to(images.device) for part in index)]
