"""Decode images of any mode and depth to arrays of 8 or 16 bits."""

import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError, not_allowed
from ..core.free_memory import check_fits, check_size
from ..core.notes import Note
from ..core.text import are, number_of
from ..data.images.sampling import Grid, Sampling
from ..data.scans import ScanDecoder, has_suffix, is_scan, scan_decoder, stem_of

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"}
)
GREY = frozenset({"1", "L", "LA", "La"})
COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV", "LAB"})
DEEP = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I"})
ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
SINGLE = frozenset({"MPO"})
"""Formats whose further pictures are previews or depth maps of the first, as phones write them."""
LARGE = 2**24  # pixels from which on one picture is compared with the memory
DEEP_LEVELS = 65535
OF_16_BITS = re.compile(r";16[BLN]$")
OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
"""Of bytes: big and little endian, and that of this machine."""
TO_DEEP = DEEP_LEVELS // 255
SMALL = 2**14
"""Levels below which images of 16 bits have inputs so small that a model learns slowly, such as 12 bits."""

Pixels = NDArray
"""Images, uint8 or uint16 (N, channels, height, width), or one of them."""


def is_image(path: Path) -> bool:
    """Return whether a path is not hidden and has an image's suffix, or is a scanner's file or series."""
    return not path.name.startswith(".") and (is_image_file(path) or is_scan(path))


def is_image_name(name: str) -> bool:
    """Return whether a name ends as that of an image, or of a scanner's file."""
    return PurePath(name).suffix.lower() in IMAGE_SUFFIXES or has_suffix(name)


def name_of_image(path: Path) -> str:
    """Return a path's name without an image's suffix."""
    return path.stem if is_image_file(path) else stem_of(path)


def is_image_file(path: Path) -> bool:
    """Return whether a path has a suffix of the files that Pillow reads."""
    return path.suffix.lower() in IMAGE_SUFFIXES


class ImageFile(NamedTuple):
    """An encoded image: its name in messages, and its path or bytes."""

    name: str
    content: Path | bytes

    @property
    def is_scan(self) -> bool:
        return isinstance(self.content, Path) and not is_image_file(self.content) and is_scan(self.content)

    @property
    def size(self) -> int:
        """Its number of bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def read(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else check_size(self.content).read_bytes()


@contextmanager
def opened(file: ImageFile) -> Iterator["Image"]:
    """Open an image with Pillow; whatever goes wrong with it is one line.

    Raises
    ------
    UserError
        When it is no image, is broken, or is too large; or a link to nothing.
    """
    from PIL import Image, UnidentifiedImageError

    source = BytesIO(file.content) if isinstance(file.content, bytes) else file.content
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `check_picture` does it
            with Image.open(source) as image:
                yield image
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"dataset: {file.name} is a link to a file that does not exist") from None
    except UnidentifiedImageError:
        reason = "is not a valid image" if file.size else "is empty (0 bytes)"
        raise UserError(f"dataset: {file.name} {reason}") from None
    except Image.DecompressionBombError:
        most = f"more than the {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels that a picture may have"
        raise UserError(f"dataset: {file.name} has {most}; cut it into tiles, or make it smaller") from None
    except Exception as error:  # a broken file can raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"dataset: {file.name} cannot be read as an image ({reason})") from error


def pages_of(image: "Image") -> Iterator["Image"]:
    """Yield the pages of a file, or the frames of an animation."""
    from PIL import ImageSequence

    return iter([image]) if count_pages(image) == 1 else iter(ImageSequence.Iterator(image))


def count_pages(image: "Image") -> int:
    """Return how many pages a file has, or frames."""
    return 1 if image.format in SINGLE else int(getattr(image, "n_frames", 1))


class ImageDecoder:
    """Decodes image files to arrays, and counts the conversions for `notes`.

    Images are turned upright by their EXIF orientation. The pages of a file, or the frames of an animation,
    become channels that follow each other; all files must have as many. Images of more than 8 bits per
    channel keep their levels: all are then uint16, those of 8 bits times 257. So are those of scanners, see
    `Sampling`, which may be volumes, (channels, depth, height, width).

    Parameters
    ----------
    size : int | str
        Height and width in pixels after resizing, or sizes of volumes. 0 keeps the size, which must then be
        equal in all images.
    spacing, window
        As of `Sampling`.
    """

    def __init__(self, size: int | str = 0, spacing: float | str = 0, window: str = "auto") -> None:
        self.sampling = Sampling(size, spacing, window)
        self.shape: tuple[int, ...] = ()
        self.pages = 0
        """Pages of each image that was decoded."""
        self.counts: Counter[str] = Counter()
        self.levels = DEEP_LEVELS, 0
        """The lowest and the highest value of images of more than 8 bits."""
        self.grids: list[Grid] = []
        """Where the pixels of each image were that was decoded, before it was resized."""
        self._scans: ScanDecoder | None = None

    def decode(self, files: Iterable[ImageFile], count: int) -> Pixels:
        """Return ``count`` images (N, channels, height, width); three channels a page if any is in colour.

        Raises
        ------
        UserError
            For a file that is not an image, and for an image of another size, number of pages, or an
            unsupported depth; when the images need more memory than there is.
        """
        images: Pixels = np.empty((0, 1, 0, 0), np.uint8)
        for i, file in enumerate(files):
            pixels = self._pixels(file, count)
            if not i:
                images = np.empty((count, *pixels.shape), pixels.dtype)
            if len(pixels) > images.shape[1]:
                images = _in_colour(images)
            elif len(pixels) < images.shape[1]:
                pixels = _in_colour(pixels[None])[0]
            if pixels.dtype != images.dtype:
                images, pixels = of_16_bits(images), of_16_bits(pixels)
            images[i] = pixels
        if not (self._scans or self.sampling.is_plain):
            raise self.sampling.unused("the images are no NIfTI or DICOM files")
        return images

    def notes(self, volumes: bool = False) -> list[Note]:
        """Return a note on each kind of conversion that was made; pages are ``volumes``, or else channels."""
        grey, colour, deep, alpha = (self.counts[kind] for kind in ("grey", "colour", "deep", "alpha"))
        low, high = self.levels
        all_images = grey + colour
        shallow = all_images - deep
        kept = f"{number_of(deep, 'image')} of 16 bits per channel {are(deep)} kept unchanged"
        enlarges = "; normalize=true enlarges them" * (high < SMALL)
        lines = {
            f"{number_of(grey, 'grey image')} {are(grey)} converted to three channels, because "
            f"{number_of(colour, 'other')} {are(colour)} in colour": grey and colour,
            f"{kept}, divided by {DEEP_LEVELS}: values {low} to {high}{enlarges}": deep,
            f"{number_of(shallow, 'image')} of 8 bits {are(shallow)} scaled to 16 bits (times {TO_DEEP})": (
                deep and shallow
            ),
            f"{number_of(all_images, 'image')} of {self.pages} pages, which become channels": self.pages > 1
            and not volumes,
            f"the alpha channel of {number_of(alpha, 'image')} is dropped": alpha,
        }
        found = [Note("inputs", line) for line, occurs in lines.items() if occurs]
        return found + (self._scans.notes() if self._scans else [])

    def _pixels(self, file: ImageFile, count: int) -> Pixels:
        """Return one image, (channels, height, width), or (channels, depth, height, width)."""
        pixels = self._of_scan(file, count) if file.is_scan else self._of_picture(file, count)
        self.shape = self.shape or pixels.shape[1:]
        if pixels.ndim != 1 + len(self.shape):
            kinds = ("a picture", "volumes") if pixels.ndim == 3 else ("a volume", "pictures")
            expected = "one kind, and the slices of a series in a folder of their own"
            raise UserError(f"dataset: {file.name} is {kinds[0]}, others are {kinds[1]}; expected {expected}")
        if pixels.shape[1:] != self.shape:
            found, others = ("x".join(map(str, shape)) for shape in (pixels.shape[1:], self.shape))
            wanted = "a number of pixels, because the images differ in size"
            raise not_allowed("image-size", 0, f"{wanted}: {file.name} has {found}, others {others}")
        return pixels

    def _of_scan(self, file: ImageFile, count: int) -> Pixels:
        """Return the picture or volume of a scanner's file."""
        assert isinstance(file.content, Path)
        self._check_pages(file.name, 1)
        self._scans = self._scans or scan_decoder(file.content, self.sampling)
        pixels, grid = self._scans.image(file.content, file.name)
        if not self.grids:
            self._check_memory(pixels, pixels.shape[1:], count)
        self.grids.append(grid)
        return pixels

    def _of_picture(self, file: ImageFile, count: int) -> Pixels:
        """Return the image of a file that Pillow reads."""
        with opened(file) as image:
            self._check_pages(file.name, count_pages(image))
            check_picture(file.name, image)
            pages = [self._of_page(page, file) for page in pages_of(image)]
            self.counts["alpha"] += image.mode in ALPHA
        channels, shape = max(map(len, pages)), pages[0].shape[1:]
        if any(page.shape[1:] != shape for page in pages):
            raise UserError(
                f"dataset: {file.name} has {len(pages)} pages of different sizes; expected one size"
            )
        self.counts["colour" if channels == 3 else "grey"] += 1
        self.counts["deep"] += pages[0].dtype == np.uint16
        pixels = np.concatenate(
            [page if len(page) == channels else _in_colour(page[None])[0] for page in pages]
        )
        sizes = self.sampling.sizes(len(shape))
        if not self.grids:
            self._check_memory(pixels, sizes or shape, count)
        self.grids.append(Grid(shape))
        return _resized(pixels, sizes[0]) if sizes else pixels

    def _of_page(self, page: "Image", file: ImageFile) -> Pixels:
        """Return a page, (1 or 3, height, width)."""
        from PIL import ImageOps

        if page.mode not in GREY | COLOUR | DEEP:
            raise ValueError(f"mode {page.mode}; expected 8 or 16 bits per channel")
        if packing := _packing(page):
            return self._deep(_deep_colour(page, file, packing))
        upright = ImageOps.exif_transpose(page)
        if page.mode in DEEP:
            return self._deep(np.asarray(upright)[None])
        values = np.asarray(upright.convert("RGB" if page.mode in COLOUR else "L"))
        return values.reshape(*values.shape[:2], -1).transpose(2, 0, 1)

    def _deep(self, values: NDArray) -> NDArray[np.uint16]:
        """Return whole numbers as 16 bits, and remember their range."""
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > DEEP_LEVELS:
            raise ValueError("more than 16 bits per channel")
        self.levels = min(self.levels[0], low), max(self.levels[1], high)
        return values.astype(np.uint16)

    def _check_pages(self, name: str, pages: int) -> None:
        self.pages = self.pages or pages
        if pages != self.pages:
            found = f"{name} has {pages}, others have {self.pages}"
            expected = "expected as many in each, which become channels, or one"
            raise UserError(f"dataset: the images differ in their number of pages: {found}; {expected}")

    def _check_memory(self, pixels: Pixels, shape: tuple[int, ...], count: int) -> None:
        """Compare all images with the memory, after the first was decoded."""
        what = f"{count:,} images of {'x'.join(map(str, (len(pixels), *shape)))}"
        needed = count * len(pixels) * math.prod(shape) * pixels.dtype.itemsize
        check_fits("image-size" if self.sampling.size else "dataset", what, needed)


def check_picture(name: str, image: "Image") -> None:
    """Compare one large picture, all of its pages, and the copy that its conversion makes, with the memory.

    Raises
    ------
    UserError
        When it does not fit.
    """
    pages = count_pages(image)
    if (pixels := image.width * image.height * pages) >= LARGE:
        what = f"{name} of {image.height}x{image.width} pixels" + f" on {pages} pages" * (pages > 1)
        check_fits("dataset", what, 2 * pixels * len(image.getbands()))


def _packing(page: "Image") -> str:
    """Return how a picture of 16 bits per channel, in colour or with alpha, lies in its file: ``RGB;16B``.

    Empty for others. Pillow reduces such pictures to 8 bits.
    """
    tile = getattr(page, "tile", [])
    if not tile or page.mode not in ("RGB", "RGBA"):
        return ""
    packing = str(_first(tile[0][3]))
    return packing if OF_16_BITS.search(packing) else ""


def _first(arguments: Any) -> Any:
    return arguments[0] if isinstance(arguments, tuple) and arguments else arguments


def _deep_colour(page: "Image", file: ImageFile, packing: str) -> NDArray[np.uint16]:
    """Return the levels of such a picture, (1 or 3, height, width), upright; alpha is dropped.

    Pillow unpacks the bytes of a pixel as it is told: once the high ones, once the low ones, which are the
    high ones of the other byte order. Grey with alpha has four bytes, which are unpacked at once.
    """
    from PIL import Image, ImageOps

    def unpacked(mode: str) -> NDArray[np.uint16]:
        with Image.open(BytesIO(file.read())) as image:
            if page.tell():
                image.seek(page.tell())
            image.tile = [
                (codec, box, offset, (mode, *arguments[1:]) if isinstance(arguments, tuple) else mode)  # type: ignore[misc]
                for codec, box, offset, arguments in image.tile
            ]
            return np.asarray(image).astype(np.uint16)

    kind, order = packing.split(";16")
    if kind == "LA":
        together = unpacked("RGBA")
        levels = together[..., :1] << 8 | together[..., 1:2]
    else:
        levels = unpacked(packing)[..., :3] << 8 | unpacked(f"{kind};16{OTHER_ORDER[order]}")[..., :3]
    upright = []
    for channel in np.moveaxis(levels, -1, 0):
        image = Image.fromarray(channel)
        image.info["exif"] = page.getexif().tobytes()
        upright.append(np.asarray(ImageOps.exif_transpose(image)))
    return np.stack(upright)


def _resized(pixels: Pixels, size: int) -> Pixels:
    """Return one image, (channels, height, width), with other sizes, bicubic as Pillow does."""
    from PIL import Image

    if pixels.dtype == np.uint8 and len(pixels) == 3:
        return np.asarray(Image.fromarray(pixels.transpose(1, 2, 0)).resize((size, size))).transpose(2, 0, 1)
    if pixels.dtype == np.uint8:
        return np.stack([np.asarray(Image.fromarray(one).resize((size, size))) for one in pixels])
    exact = [np.asarray(Image.fromarray(one.astype(np.float32)).resize((size, size))) for one in pixels]
    whole: Pixels = np.clip(np.rint(np.stack(exact)), 0, DEEP_LEVELS).astype(np.uint16)
    return whole


def of_16_bits(images: Pixels) -> NDArray[np.uint16]:
    """Return images as uint16: those of 8 bits times 257, so that white stays white."""
    return images if images.dtype == np.uint16 else images.astype(np.uint16) * np.uint16(TO_DEEP)


def _in_colour(images: Pixels) -> Pixels:
    """Repeat each channel of grey images (N, pages, height, width) three times."""
    return np.repeat(images, 3, axis=1)
