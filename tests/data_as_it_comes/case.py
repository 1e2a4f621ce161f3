"""A case of files as people have them, and what such files are made of."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Write = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """Files, the keys of a run, and what it says of them before anything is learnt.

    Parameters
    ----------
    name : str
        What is the matter with them.
    write : Callable[[Path], None]
        Writes the files into an empty folder.
    says : dict[str, list[str]] or str
        The lines of each row that has some; or the line by which the files are refused. ``FOLDER`` stands for
        the folder's path.
    keys : dict
        Of the run, but for the dataset.
    file : str
        The dataset in the folder, if it is not the folder itself.
    classes : tuple[str, ...]
        The classes' names, where there are some.
    shape : tuple[int, ...]
        Of an example.
    sites : tuple[str, ...]
        The natural clients, where the keys ask for them.
    pictures : list
        The first pixel of each picture, by channel, and its label, where they are looked at.
    """

    name: str
    write: Callable[[Path], None]
    says: dict[str, list[str]] | str = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    classes: tuple[str, ...] = ()
    shape: tuple[int, ...] = (1, 4, 4)
    sites: tuple[str, ...] = ()
    pictures: list[tuple[int, ...]] | None = None


class Cases(list[Case]):
    """Cases, each beside the function that writes its files."""

    def add(
        self, says: dict[str, list[str]] | str, name: str = "", **fields: Any
    ) -> Callable[[Write], Write]:
        """Return a decorator that adds a case of the function's name; several may have the same files."""

        def added(write: Write) -> Write:
            self.append(Case(name or write.__name__.replace("_", " "), write, says, **fields))
            return write

        return added


OF_ROWS = [(i, i % 2) for i in range(10)]
"""The picture of the shade i has the label i modulo 2."""
FIFTH = "no test set: a fixed 20 % of the rows is held out"


def held_out(count: int, of: int, each: str = "class") -> str:
    """What is said of so many pictures that are held out, of each class, or of each site and class."""
    return f"no test split: {count} of {of} images (20 % per {each}) are held out"


def names(column: str, of: str = "labels.csv") -> str:
    """What is said of the column that names the pictures."""
    return f"the column {column!r} of {of!r} names the pictures (guessed; image-column decides)"


def grey(value: int, mode: str = "L") -> Image.Image:
    """A picture of 4x4 pixels of one shade."""
    return Image.new("L", (4, 4), value).convert(mode)


def put(
    root: Path, *folders: str, count: int = 5, mode: str = "L", name: str = "{}.png", first: int = 0
) -> Path:
    """Write pictures into folders, of the shades 10 f + i; return the root."""
    for f, folder in enumerate(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            grey(10 * (f + first) + i, mode).save(root / folder / name.format(i))
    return root


def deep(root: Path, folder: str, values: list[int], name: str = "{}.png") -> None:
    """Write grey pictures of 16 bits, each of one value."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    for i, value in enumerate(values):
        Image.fromarray(np.full((4, 4), value, np.uint16)).save(root / folder / name.format(i))


def text(root: Path, name: str, content: str = "notes") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(content, encoding="utf-8")


def table(root: Path, name: str, header: str, rows: list[str]) -> None:
    text(root, name, "\n".join([header, *rows]) + "\n")


def masks(root: Path, values: tuple[int, int], count: int = 5, mode: str = "L", ending: str = ".png") -> None:
    """Write images and their masks, whose left half has the first value and whose right half the second."""
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        grey(20 * i).save(root / "images" / f"{i}.png")
        mask = np.repeat(np.array([values], np.uint8), 2, axis=1).repeat(4, axis=0)
        Image.fromarray(mask).convert(mode).save(root / "masks" / f"{i}{ending}")


def png_of_16_bits(path: Path, pixels: np.ndarray) -> None:
    """Write a PNG of 16 bits, uint16 (height, width, 2 to 4), as Pillow cannot; rows are filtered."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        whole = kind + content
        return len(content).to_bytes(4, "big") + whole + zlib.crc32(whole).to_bytes(4, "big")

    height, width, channels = pixels.shape
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    values = pixels.astype(">u2").view(np.uint8).reshape(height, width, 2 * channels)
    filtered = np.diff(values, axis=1, prepend=np.zeros_like(values[:, :1])).reshape(height, -1)
    rows = b"".join(b"\1" + row.tobytes() for row in filtered)
    parts = (
        (b"IHDR", size + bytes([16, {2: 4, 3: 2, 4: 6}[channels], 0, 0, 0])),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))
