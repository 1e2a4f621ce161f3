"""Decode images of any mode and depth to uint8 arrays."""

from collections import Counter
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from ..notes import Note

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"}
)
GREY = frozenset({"1", "L", "LA", "La"})
COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV", "LAB"})
DEEP = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I"})
ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})


def is_image(path: Path) -> bool:
    """Return whether a path has an image's suffix and is not hidden."""
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


class ImageFile(NamedTuple):
    """An encoded image: its name in messages, and its path or bytes."""

    name: str
    content: Path | bytes


class ImageDecoder:
    """Decodes image files to arrays, and counts the conversions for `notes`.

    Images are turned upright by their EXIF orientation.

    Parameters
    ----------
    size : int
        Height and width in pixels after resizing. 0 keeps the size, which must then be equal in all images.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.shape = (size, size) if size else None
        self.counts: Counter[str] = Counter()
        self.sizes: list[tuple[int, int]] = []
        """Height and width of each image that was decoded, before it was resized."""

    def decode(self, files: Iterable[ImageFile], count: int) -> NDArray[np.uint8]:
        """Return ``count`` images, uint8 (N, channels, height, width); three channels if any is in colour.

        Raises
        ------
        UserError
            For a file that is not an image, and for an image of another size or an unsupported depth.
        """
        images = np.empty((0, 1, 0, 0), np.uint8)
        for i, file in enumerate(files):
            pixels = self._pixels(file)
            if not i:
                images = np.empty((count, *pixels.shape), np.uint8)
            if len(pixels) > images.shape[1]:
                images = to_three_channels(images)
            images[i] = pixels
        return images

    def notes(self) -> list[Note]:
        """Return a note on each kind of conversion that was made."""
        grey, colour, deep, alpha = (self.counts[kind] for kind in ("grey", "colour", "deep", "alpha"))
        lines = {
            f"{grey} grey images are converted to three channels, because {colour} others are in colour": grey
            and colour,
            f"{deep} images of 16 bits per channel are reduced to 8 bits (divided by 257)": deep,
            f"the alpha channel of {alpha} images is dropped": alpha,
        }
        return [Note("inputs", line) for line, occurs in lines.items() if occurs]

    def _pixels(self, file: ImageFile) -> NDArray[np.uint8]:
        """Return one image, uint8 (channels, height, width)."""
        from PIL import Image, ImageOps, UnidentifiedImageError

        source = BytesIO(file.content) if isinstance(file.content, bytes) else file.content
        try:
            with Image.open(source) as opened:
                image = self._of_8_bits(ImageOps.exif_transpose(opened))
        except UnidentifiedImageError:
            raise UserError(f"dataset: {file.name} is not a valid image") from None
        except Exception as error:  # a broken file can raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"dataset: {file.name} cannot be read as an image ({reason})") from error
        self.sizes.append(image.size[::-1])
        if self.size:
            image = image.resize((self.size, self.size))
        shape = image.size[::-1]
        self.shape = self.shape or shape
        if shape != self.shape:
            sizes = f"{file.name} has {shape[0]}x{shape[1]}, others {self.shape[0]}x{self.shape[1]}"
            raise not_allowed(
                "image-size", 0, f"a number of pixels, because the images differ in size: {sizes}"
            )
        return np.asarray(image).reshape(*shape, -1).transpose(2, 0, 1)

    def _of_8_bits(self, image: "Image") -> "Image":
        """Convert the image to mode L or RGB."""
        from PIL import Image

        if image.mode not in GREY | COLOUR | DEEP:
            raise ValueError(f"mode {image.mode}; expected 8 or 16 bits per channel")
        self.counts["colour" if image.mode in COLOUR else "grey"] += 1
        self.counts["alpha"] += image.mode in ALPHA
        if image.mode not in DEEP:
            return image.convert("RGB" if image.mode in COLOUR else "L")
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("more than 16 bits per channel")
        self.counts["deep"] += 1
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def to_three_channels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat the channel of grey images three times; (N, channels, height, width)."""
    return images if images.shape[1] == 3 else np.repeat(images, 3, axis=1)


def with_equal_channels(parts: Iterable[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Return all parts with three channels if any of them has three."""
    images = list(parts)
    return [to_three_channels(p) for p in images] if any(p.shape[1] == 3 for p in images) else images
