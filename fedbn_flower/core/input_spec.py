"""What a model function is told: what the input looks like, and what is to be predicted."""

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import not_allowed

FORMS = "shape:SIZES:OUTPUTS or shape:SIZES:OUTPUTS:PREDICTS (shape:1x28x28:10, shape:30:1:numbers)"
PREDICTS = ("classes", "numbers", "characters")


@dataclass(frozen=True)
class InputSpec:
    """The input of a model and how many outputs it is to have.

    Parameters
    ----------
    shape : tuple[int, ...]
        Of one example: (channels, height, width) of an image, (columns,) of a table's row, (length,) of a
        text.
    outputs : int
        How many numbers a prediction needs: the classes, the values, the characters there are.
    predicts : str
        ``classes``: one of them; ``numbers``; ``characters``: the next one after each.
    """

    shape: tuple[int, ...]
    outputs: int
    predicts: str = "classes"

    @classmethod
    def parse(cls, dataset: str) -> "InputSpec | None":
        """What ``shape:SIZES:OUTPUTS:PREDICTS`` says; None for any other dataset.

        Raises
        ------
        UserError
            When it does not say it in whole numbers >= 1 and a word that is known.
        """
        if not dataset.startswith("shape:"):
            return None
        match = re.fullmatch(r"shape:([1-9]\d*(?:x[1-9]\d*)*):([1-9]\d*)(?::([a-z]+))?", dataset)
        if not match or (match[3] or PREDICTS[0]) not in PREDICTS:
            raise not_allowed("dataset", dataset, FORMS)
        return cls(tuple(map(int, match[1].split("x"))), int(match[2]), match[3] or PREDICTS[0])

    def as_dataset(self) -> str:
        """The words that `parse` takes."""
        what = "" if self.predicts == PREDICTS[0] else f":{self.predicts}"
        return f"shape:{'x'.join(map(str, self.shape))}:{self.outputs}{what}"

    @property
    def classes(self) -> int:
        """How many classes there are; the outputs by their usual name."""
        return self.outputs

    @property
    def size(self) -> int:
        """How many values an input has."""
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        return self._image()[0]

    @property
    def height(self) -> int:
        return self._image()[1]

    @property
    def width(self) -> int:
        return self._image()[2]

    def _image(self) -> tuple[int, ...]:
        if len(self.shape) != 3:
            raise ValueError(f"it takes images, not {self}")
        return self.shape

    def zeros(self, count: int, device: str = "cpu") -> Tensor:
        """``count`` inputs, to try a model with: float32, or int64 characters."""
        dtype = torch.int64 if self.predicts == "characters" else torch.float32
        return torch.zeros((count, *self.shape), dtype=dtype, device=device)

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.shape))
        if self.predicts == "characters":
            return f"{sizes} characters of {self.outputs}"
        return (
            f"{sizes} in {self.outputs} classes"
            if self.predicts == "classes"
            else f"{sizes} to {self.outputs} numbers"
        )
