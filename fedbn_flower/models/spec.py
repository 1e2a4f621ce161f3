"""What a model function is told: what the input looks like, and what is to be predicted."""

import re
from dataclasses import dataclass

from ..errors import not_allowed


@dataclass(frozen=True)
class InputSpec:
    """Images of shape (channels, height, width), in one of ``classes`` classes."""

    channels: int
    height: int
    width: int
    classes: int

    @classmethod
    def parse(cls, dataset: str) -> "InputSpec | None":
        """What ``shape:CHANNELSxHEIGHTxWIDTH:CLASSES`` says; None for any other dataset.

        Raises
        ------
        UserError
            When it does not say it in whole numbers >= 1.
        """
        if not dataset.startswith("shape:"):
            return None
        match = re.fullmatch(r"shape:([1-9]\d*)x([1-9]\d*)x([1-9]\d*):([1-9]\d*)", dataset)
        if not match:
            raise not_allowed("dataset", dataset, "shape:CHANNELSxHEIGHTxWIDTH:CLASSES (shape:1x28x28:10)")
        return cls(*map(int, match.groups()))

    def as_dataset(self) -> str:
        """The words that `parse` takes."""
        return f"shape:{self.channels}x{self.height}x{self.width}:{self.classes}"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    @property
    def size(self) -> int:
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        return f"{self.channels}x{self.height}x{self.width} in {self.classes} classes"
