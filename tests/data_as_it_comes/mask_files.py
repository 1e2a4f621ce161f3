"""Images and masks as people have them."""

import shutil
from pathlib import Path

from .case import Cases, grey, masks, put

CASES = Cases()


@CASES.add(
    {
        "examples": ["no test split: 2 of 10 images (20 % per site) are held out"],
        "target": ["masks of 'lyon' of 0 and 255 have two classes: 255 is class 1"],
    }
)
def sites_that_write_masks_differently(root: Path) -> None:
    masks(root / "lyon", (0, 255))
    masks(root / "turin", (0, 1))


@CASES.add(
    {
        "left out": ["5 images in 'turin/images', which has no masks"],
        "examples": ["no test split: 1 of 5 images (20 %) are held out"],
    }
)
def a_site_without_masks(root: Path) -> None:
    masks(root / "lyon", (0, 1))
    put(root, "turin/images")


@CASES.add({"examples": ["no test split: 2 of 10 images (20 % per site) are held out"]})
def sites_below_images_and_masks(root: Path) -> None:
    for site in ("lyon", "turin"):
        masks(root / "of" / site, (0, 1))
        for kind in ("images", "masks"):
            (root / kind).mkdir(exist_ok=True)
            shutil.move(root / "of" / site / kind, root / kind / site)
    shutil.rmtree(root / "of")


@CASES.add({"examples": ["no split 'test': the split 'val' is the test set"]})
def splits_below_images_and_masks(root: Path) -> None:
    for split in ("train", "val"):
        masks(root / "of" / split, (0, 1))
        for kind in ("images", "masks"):
            (root / kind).mkdir(exist_ok=True)
            shutil.move(root / "of" / split / kind, root / kind / split)
    shutil.rmtree(root / "of")


@CASES.add(
    {
        "inputs": ["5 images and masks of 3 pages each are volumes"],
        "examples": ["no test split: 1 of 5 images (20 %) are held out"],
    },
    shape=(1, 3, 4, 4),
)
def volumes(root: Path) -> None:
    for kind, pages in {"images": [10, 20, 30], "masks": [0, 1, 1]}.items():
        (root / kind).mkdir()
        for i in range(5):
            first, *others = (grey(page) for page in pages)
            first.save(root / kind / f"{i}.tif", save_all=True, append_images=others)


@CASES.add("dataset: the mask FOLDER/masks/3.tif has 2 pages; expected one, or 3 as its image")
def masks_of_another_depth(root: Path) -> None:
    volumes(root)
    grey(1).save(root / "masks" / "3.tif", save_all=True, append_images=[grey(0)])
