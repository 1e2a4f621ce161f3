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
        count, _, height, width = images.shape
        device = images.device
        tops, lefts = torch.randint(2 * self.padding + 1, (2, count)).to(device)
        mirrored = torch.randint(2, (count, 1, 1, 1)).bool().to(device)
        framed = torch.nn.functional.pad(images, (self.padding,) * 4)
        places = framed.unfold(2, height, 1).unfold(3, width, 1)
        crops = places[torch.arange(count, device=device), :, tops, lefts]
        return torch.where(mirrored, crops.flip(3), crops)
