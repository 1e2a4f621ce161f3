"""Modules around the networks of other libraries."""

from torch import Tensor, nn


class OnlyOut(nn.Module):
    """Give the masks of a segmentation network of torchvision, which returns them in a dictionary."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        masks: Tensor = self.network(images)["out"]
        return masks
