"""Files of pictures as people have them."""

from pathlib import Path

import numpy as np
from PIL import Image

from .case import Cases, deep, grey, held_out, png_of_16_bits, put

CASES = Cases()
EACH = [(f, i) for f in (0, 1) for i in range(5)]
"""The folder, and the picture in it."""


@CASES.add({"examples": [held_out(2, 10)]}, classes=("melanoma", "naevus"))
def capital_suffixes(root: Path) -> None:
    put(root, "melanoma", name="{}.PNG")
    put(root, "naevus", name="{}.Jpg", first=1)


@CASES.add("dataset: FOLDER/b/3.png is empty (0 bytes)")
def an_empty_file(root: Path) -> None:
    put(root, "a", "b")
    (root / "b" / "3.png").write_bytes(b"")


@CASES.add(
    {
        "examples": [held_out(2, 10)],
        "inputs": [
            "5 images of 16 bits per channel are kept unchanged, divided by 65535: values 0 to 65535",
            "5 images of 8 bits are scaled to 16 bits (times 257)",
        ],
    },
    classes=("a", "b"),
)
def eight_and_sixteen_bits(root: Path) -> None:
    put(root, "a")
    deep(root, "b", [0, 255, 256, 1000, 65535])


@CASES.add(
    {
        "examples": [held_out(2, 10)],
        "inputs": [
            "5 grey images are converted to three channels, because 5 others are in colour",
            "10 images of 16 bits per channel are kept unchanged, divided by 65535: values 0 to 9000;"
            " normalize=true enlarges them",
            "the alpha channel of 10 images is dropped",
        ],
    },
    classes=("a", "b"),
    shape=(3, 4, 4),
    pictures=[(1000 * i, *((2 * i, 3) if i % 2 else [1000 * i] * 2), i % 2) for i in range(10)],
)
def sixteen_bits_with_alpha(root: Path) -> None:
    for i in range(10):
        of_one = [1000 * i, 2 * i, 3, 65535] if i % 2 else [1000 * i, 65535]
        pixels = np.full((4, 4, len(of_one)), of_one, np.uint16)
        png_of_16_bits(root / "ab"[i % 2] / f"{i}.png", pixels)


@CASES.add(
    {"examples": [held_out(2, 10)], "inputs": ["10 images of 3 pages, which become channels"]},
    classes=("a", "b"),
    shape=(3, 4, 4),
    pictures=[(10 * f + i, 100, 200, f) for f, i in EACH],
)
def stacks(root: Path) -> None:
    for f, folder in enumerate("ab"):
        (root / folder).mkdir()
        for i in range(5):
            pages = [grey(10 * f + i), grey(100), grey(200)]
            pages[0].save(root / folder / f"{i}.tif", save_all=True, append_images=pages[1:])


@CASES.add(
    "dataset: the images differ in their number of pages: FOLDER/b/3.tif has 2, others "
    "have 1; expected as many in each, which become channels, or one"
)
def one_stack(root: Path) -> None:
    put(root, "a", "b", name="{}.tif")
    grey(1).save(root / "b" / "3.tif", save_all=True, append_images=[grey(2)])


@CASES.add({"examples": [held_out(2, 10)]}, classes=("a", "b"))
def pictures_of_a_phone(root: Path) -> None:
    put(root, "a", name="{}.jpg")
    (root / "b").mkdir()
    for i in range(5):
        grey(i).save(root / "b" / f"{i}.jpg", format="MPO", save_all=True, append_images=[grey(9)])


@CASES.add({"examples": [held_out(2, 10)]}, keys={"image-size": 8}, classes=("a", "b"), shape=(1, 8, 8))
def a_mosaic(root: Path) -> None:
    put(root, "a", "b")
    Image.new("1", (9500, 9500)).save(root / "b" / "4.png")
