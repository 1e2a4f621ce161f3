"""Read images and their masks from two folders, ``images`` and ``masks``, perhaps of several sites."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.errors import UserError, not_allowed
from ..dataset import Decoded, Request
from ..images.decoding import ImageDecoder, ImageFile, is_image
from ..images.kind import images_decoded
from ..images.mask_files import MaskDecoder
from ..labels import classes_of_folder
from ..masks import numbered
from ..notes import Note
from ..splits import find_test_split, train_and_test
from .class_folders import FOLDER

IMAGES, MASKS = "images", "masks"
ENDING = re.compile(r"[_-](mask|segmentation|seg|label|lesion|gt)$", re.IGNORECASE)
"""What a mask's name may have after the name of its image."""


class Pair(NamedTuple):
    """An image, its mask, and its site, empty without sites."""

    image: Path
    mask: Path
    site: str


def has_mask_folders(folder: Path) -> bool:
    """Return whether it holds ``images`` and ``masks``, or ``SITE/images``, or either below ``train``."""
    try:
        return folder.is_dir() and any(_pairs_of_folders(root) for root in _roots(folder)[0])
    except OSError:  # the folder is refused where it is read
        return False


def has_mask_sites(folder: Path) -> bool:
    """Return whether the folders ``images`` and ``masks``, which there are, are those of sites."""
    return any(site for root in _roots(folder)[0] for site in _pairs_of_folders(root))


def decode_mask_folders(request: Request, folder: Path) -> Decoded:
    """Decode images and masks in the order of their paths; the sites are the clients of ``natural:folder``.

    A mask has the name of its image, perhaps with `ENDING`, and any suffix of images. Without a test split a
    fifth is held out, of each site if there are sites. For the names of classes see `classes_of_folder`.

    Raises
    ------
    UserError
        For an image without a mask, a file that cannot be read, sizes that differ, masks whose values are no
        class numbers, or ``natural`` without sites.
    """
    roots, notes = _roots(folder)
    sites = has_mask_sites(folder)
    if request.group_column and not (sites and request.group_column == FOLDER):
        expected = f"'natural:{FOLDER}'" if sites else "another partition: there are no folders of sites"
        raise not_allowed("partition", f"natural:{request.group_column}", expected)
    decoder, masks = ImageDecoder(request.image_size), MaskDecoder(request.image_size)
    parts = []
    for root in roots:
        pairs = [pair for site, path in _pairs_of_folders(root).items() for pair in _pairs(site, path, notes)]
        if not pairs:
            raise UserError(f"dataset: no images in the folders {IMAGES!r} of {str(root)!r}")
        decoder.sizes.clear()
        pixels = decoder.decode((ImageFile(str(pair.image), pair.image) for pair in pairs), len(pairs))
        found = masks.decode([ImageFile(str(pair.mask), pair.mask) for pair in pairs], decoder.sizes)
        parts.append((pixels, found, np.array([pair.site for pair in pairs])))
    targets, classes, of_values = numbered([found for _, found, _ in parts], "dataset")
    parts = [(pixels, y, ids) for (pixels, _, ids), y in zip(parts, targets, strict=True)]
    train, test, held_out = train_and_test(parts)
    groups = (train[2], test[2]) if request.group_column else None
    notes += [*held_out, *decoder.notes(), *masks.notes(), *of_values]
    given = bool(groups) and len(roots) > 1
    named = classes_of_folder(folder, classes)
    return images_decoded(train[:2], test[:2], named, groups, notes, tests_by_client=given)


def _roots(folder: Path) -> tuple[list[Path], list[Note]]:
    """Return the folder, or the folders of its splits, and notes."""
    if not (folder / "train").is_dir():
        return [folder], []
    name, notes = find_test_split([path.name for path in folder.iterdir() if path.is_dir()])
    return [folder / split for split in ("train", name) if split], notes


def _pairs_of_folders(root: Path) -> dict[str, Path]:
    """Return the folders that hold ``images`` and ``masks``, by site; ``root`` itself has no name."""
    if _has_both(root):
        return {"": root}
    return {path.name: path for path in sorted(root.iterdir()) if path.is_dir() and _has_both(path)}


def _has_both(folder: Path) -> bool:
    return (folder / IMAGES).is_dir() and (folder / MASKS).is_dir()


def _pairs(site: str, folder: Path, notes: list[Note]) -> Iterator[Pair]:
    """Yield the pairs in a folder, in the order of the images' names; add a note on masks without images."""
    images, found = list(_files(folder / IMAGES)), list(_files(folder / MASKS))
    by_name: dict[str, Path] = {}
    for path in found:
        by_name.setdefault(ENDING.sub("", path.stem), path)
    by_name |= {path.stem: path for path in found}
    used = set()
    for image in images:
        mask = by_name.get(image.stem)
        if mask is None:
            lacking = sum(path.stem not in by_name for path in images)
            others = f" ({lacking} of {len(images)} images have none)" if lacking > 1 else ""
            raise UserError(f"dataset: {image} has no mask of its name in {str(folder / MASKS)!r}{others}")
        used.add(mask)
        yield Pair(image, mask, site)
    if left := len(found) - len(used):
        notes.append(Note("left out", f"{left} masks in {str(folder / MASKS)!r}, which have no image"))


def _files(folder: Path) -> Iterator[Path]:
    return filter(is_image, sorted(folder.iterdir()))
