"""The argument of a model function: the shape of its input, and what it predicts."""

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import not_allowed

if TYPE_CHECKING:
    import torch

FORMS = "shape:SIZES:OUTPUTS or shape:SIZES:OUTPUTS:PREDICTS (shape:1x28x28:10, shape:30:1:numbers)"
PREDICTS = ("classes", "numbers", "characters", "masks")


@dataclass(frozen=True)
class InputSpec:
    """The input of a model and how many outputs it needs.

    Parameters
    ----------
    shape : tuple[int, ...]
        Of one example: (channels, height, width) of an image, (channels, depth, height, width) of a volume,
        (columns,) of a table's row, (length,) of a text.
    outputs : int
        How many numbers a prediction has: one per class, per value, or per character of the alphabet.
    predicts : str
        ``classes`` (one of them), ``numbers``, ``characters`` (the next one at each position), or ``masks``
        (a class of each pixel).
    integers : bool
        Whether the inputs are whole numbers, int64, such as tokens; see `models.integers`.
    """

    shape: tuple[int, ...]
    outputs: int
    predicts: str = "classes"
    integers: bool = False

    @classmethod
    def parse(cls, dataset: str) -> "InputSpec | None":
        """Parse ``shape:SIZES:OUTPUTS:PREDICTS``; return None for any other dataset.

        Raises
        ------
        UserError
            When a size is not a whole number >= 1, or PREDICTS is unknown.
        """
        if not dataset.startswith("shape:"):
            return None
        match = re.fullmatch(r"shape:([1-9]\d*(?:x[1-9]\d*)*):([1-9]\d*)(?::([a-z]+))?", dataset)
        if not match or (match[3] or PREDICTS[0]) not in PREDICTS:
            raise not_allowed("dataset", dataset, FORMS)
        return cls(tuple(map(int, match[1].split("x"))), int(match[2]), match[3] or PREDICTS[0])

    def as_dataset(self) -> str:
        """Return the text that `parse` reads."""
        what = "" if self.predicts == PREDICTS[0] else f":{self.predicts}"
        return f"shape:{'x'.join(map(str, self.shape))}:{self.outputs}{what}"

    @property
    def classes(self) -> int:
        """The number of classes: ``outputs`` by its usual name."""
        return self.outputs

    @property
    def size(self) -> int:
        """The number of values of one input."""
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
            raise ValueError(f"expected images, not {self}")
        return self.shape

    def zeros(self, count: int, device: str = "cpu") -> "torch.Tensor":
        """Return ``count`` dummy inputs: float32, or int64 for characters and whole numbers."""
        import torch  # seconds

        dtype = torch.int64 if self.integers or self.predicts == "characters" else torch.float32
        return torch.zeros((count, *self.shape), dtype=dtype, device=device)

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.shape))
        if self.predicts == "characters":
            return f"{sizes} characters of {self.outputs}"
        if self.predicts == "masks":
            return f"{sizes} with masks of {self.outputs} classes"
        return (
            f"{sizes} in {self.outputs} classes"
            if self.predicts == "classes"
            else f"{sizes} to {self.outputs} numbers"
        )
