"""Pictures of any mode and depth as arrays of 8 bits."""

from collections import Counter
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"}
)
GREY = frozenset({"1", "L", "LA", "La"})
COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV", "LAB"})
DEEP = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I"})
ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})


class File(NamedTuple):
    """An encoded picture: where it is, or its bytes, and what to call it."""

    name: str
    content: Path | bytes


class Pictures:
    """Decodes pictures, and counts what is to be told of them.

    One that is turned on its side by its EXIF orientation is turned back.

    Parameters
    ----------
    size : int
        Pixels to which height and width are resized; 0 keeps them, and they have to be the same everywhere.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.shape = (size, size) if size else None
        self.seen: Counter[str] = Counter()

    def stacked(self, files: Iterable[File], count: int) -> NDArray[np.uint8]:
        """``count`` of them, uint8 (N, channels, height, width): three channels if any picture is in colour.

        Raises
        ------
        UserError
            For a file that holds no picture, or one of another size or depth.
        """
        images = np.empty((0, 1, 0, 0), np.uint8)
        for i, file in enumerate(files):
            pixels = self._pixels(file)
            if not i:
                images = np.empty((count, *pixels.shape), np.uint8)
            if len(pixels) > images.shape[1]:
                images = in_colour(images)
            images[i] = pixels
        return images

    def notes(self) -> list[str]:
        """A line on each thing that was done to some of them."""
        grey, colour, deep, alpha = (self.seen[kind] for kind in ("grey", "colour", "deep", "alpha"))
        lines = {
            f"{grey} grey images are given three channels, as {colour} others are in colour": grey and colour,
            f"{deep} images of 16 bits are kept in 8: divided by 257": deep,
            f"the alpha channel of {alpha} images is left out": alpha,
        }
        return [f"images: {line}" for line, told in lines.items() if told]

    def _pixels(self, file: File) -> NDArray[np.uint8]:
        """uint8 (channels, height, width)."""
        from PIL import Image, ImageOps, UnidentifiedImageError

        source = BytesIO(file.content) if isinstance(file.content, bytes) else file.content
        try:
            with Image.open(source) as opened:
                image = self._of_8_bits(ImageOps.exif_transpose(opened))
        except UnidentifiedImageError:
            raise UserError(f"dataset: the image {file.name} cannot be read (it is none)") from None
        except Exception as error:  # a broken file can raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"dataset: the image {file.name} cannot be read ({reason})") from error
        if self.size:
            image = image.resize((self.size, self.size))
        shape = image.size[::-1]
        self.shape = self.shape or shape
        if shape != self.shape:
            sizes = f"{file.name} has {shape[0]}x{shape[1]}, others {self.shape[0]}x{self.shape[1]}"
            raise not_allowed("image-size", 0, f"a number of pixels, since the images differ: {sizes}")
        return np.asarray(image).reshape(*shape, -1).transpose(2, 0, 1)

    def _of_8_bits(self, image: "Image") -> "Image":
        """The image in the mode L or RGB."""
        from PIL import Image

        if image.mode not in GREY | COLOUR | DEEP:
            raise ValueError(f"it has the mode {image.mode}, not 8 or 16 bits a channel")
        self.seen["colour" if image.mode in COLOUR else "grey"] += 1
        self.seen["alpha"] += image.mode in ALPHA
        if image.mode not in DEEP:
            return image.convert("RGB" if image.mode in COLOUR else "L")
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("it has more than 16 bits a channel")
        self.seen["deep"] += 1
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def in_colour(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Three channels, each the one there is."""
    return images if images.shape[1] == 3 else np.repeat(images, 3, axis=1)


def alike(parts: Iterable[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """All in colour if any of them is."""
    images = list(parts)
    return [in_colour(part) for part in images] if any(p.shape[1] == 3 for p in images) else images
