"""Decode mask files: the class number of each pixel."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.segmentation import VOID

from ..core.errors import UserError
from ..core.notes import Note
from ..data.images.sampling import Grid, Sampling
from ..data.scans import ScanDecoder, other_size, scan_decoder
from .decoding import ImageFile, check_picture, count_pages, opened, pages_of

LOSSY = frozenset({"JPEG", "MPO"})
HALF = 128


class MaskDecoder:
    """Decodes mask files to the values that are in them, palette indices and grey values.

    A JPEG file cannot hold class numbers: its values from 128 on become 255, the others 0.

    Parameters
    ----------
    size, spacing
        As of `Sampling`: a mask is resized as its image, by the nearest pixel.
    """

    def __init__(self, size: int | str = 0, spacing: float | str = 0) -> None:
        self.sampling = Sampling(size, spacing)
        self.lossy = 0
        self._scans: ScanDecoder | None = None

    def decode(self, files: Sequence[ImageFile], grids: Sequence[Grid], pages: int = 1) -> NDArray[np.uint8]:
        """Return the masks of images whose pixels were there, with so many pages.

        They are uint8 (N, height, width); or (N, pages, height, width) if they have as many pages as their
        images, which are then the slices of volumes.

        Raises
        ------
        UserError
            For a file that is not an image, is in colour, has a value above 255, or has another size or
            number of pages than its image.
        """
        masks = np.empty((0, 0, 0), np.uint8)
        for i, (file, grid) in enumerate(zip(files, grids, strict=True)):
            mask = self._of_scan(file, grid) if file.is_scan else self._mask(file, grid.shape, pages)
            if not i:
                masks = np.empty((len(files), *mask.shape), np.uint8)
            if mask.shape != masks.shape[1:]:
                raise UserError(
                    f"dataset: the masks differ in their number of pages: {file.name} has another"
                )
            masks[i] = mask
        return masks

    def notes(self) -> list[Note]:
        """Return a note on JPEG files."""
        if not self.lossy:
            return []
        line = f"{self.lossy} masks are JPEG files, whose values are blurred: from {HALF} on they become 255"
        return [Note("target", f"{line}, else 0")]

    def _of_scan(self, file: ImageFile, grid: Grid) -> NDArray[np.uint8]:
        """Return the mask in a scanner's file, resampled as its image."""
        assert isinstance(file.content, Path)
        self._scans = self._scans or scan_decoder(file.content, self.sampling)
        return self._scans.mask(file.content, file.name, grid)

    def _mask(self, file: ImageFile, shape: tuple[int, ...], pages: int) -> NDArray[np.uint8]:
        if len(shape) > 2:
            raise UserError(f"dataset: the mask {file.name} is a picture, and its image a volume")
        with opened(file) as image:
            check_picture(file.name, image)
            found = count_pages(image)
            if found not in (1, pages):
                expected = f"one, or {pages} as its image" if pages > 1 else "one, as its image has"
                raise UserError(f"dataset: the mask {file.name} has {found} pages; expected {expected}")
            is_lossy = image.format in LOSSY
            stack = [np.asarray(page.convert("L") if page.mode == "1" else page) for page in pages_of(image)]
        self.lossy += is_lossy
        slices = [self._of_page(file.name, values, shape, is_lossy) for values in stack]
        return np.stack(slices) if len(slices) > 1 else slices[0]

    def _of_page(
        self, name: str, found: NDArray, shape: tuple[int, ...], is_lossy: bool
    ) -> NDArray[np.uint8]:
        from PIL import Image

        values = self._of_one_channel(name, found)
        if values.shape != shape:
            raise other_size(name, values.shape, shape)
        if values.min() < 0 or values.max() > VOID:
            raise UserError(f"dataset: the mask {name} holds the value {values.max()}; expected 0 to 255")
        mask = values.astype(np.uint8)
        if is_lossy:
            mask = np.where(mask >= HALF, 255, 0).astype(np.uint8)
        if sizes := self.sampling.sizes(2):
            resized = Image.fromarray(mask).resize(sizes, Image.Resampling.NEAREST)  # type: ignore[arg-type]
            mask = np.asarray(resized)
        return mask

    def _of_one_channel(self, name: str, values: NDArray) -> NDArray:
        """Return (height, width) of values with equal colours; alpha is left out."""
        if values.ndim == 2:
            return values
        colours = values[..., : 3 if values.shape[2] > 2 else 1]
        if (colours != colours[..., :1]).any():
            raise UserError(
                f"dataset: the mask {name} is in colour; expected grey values or a palette: class numbers"
            )
        first: NDArray = values[..., 0]
        return first
