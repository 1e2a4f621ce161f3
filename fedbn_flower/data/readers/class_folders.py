"""Read image folders: one folder per class, or one folder per site with class folders in it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...core.errors import UserError, not_allowed
from ..dataset import Decoded, Request
from ..images.decoding import ImageDecoder, ImageFile, is_image
from ..images.kind import images_decoded
from ..labels import Classes
from ..notes import Note
from ..splits import TEST_NAMES, find_test_split, train_and_test

FOLDER = "folder"
"""The column of a natural partition by site."""
MAX_SHOWN = 5


def has_class_folders(folder: Path) -> bool:
    """Return whether it has images as ``CLASS/1.png`` or ``train/CLASS/1.png``, and no ``metadata`` file."""
    root = folder / "train" if (folder / "train").is_dir() else folder
    return not any(root.glob("metadata.*")) and any(map(is_image, root.glob("*/**/*")))


def decode_class_folders(request: Request, folder: Path) -> Decoded:
    """Decode images in the order of their paths, labelled by folder.

    Classes are numbered in the order of their names, as torchvision and `datasets` number them. A folder
    without images is a class too. In site folders (see `site_folders`) the folders below are the classes, and
    the sites are the clients of ``natural:folder``.

    Raises
    ------
    UserError
        For an image that cannot be read, a split without images, or ``natural`` without site folders.
    """
    roots, notes = _roots(folder)
    sites = site_folders(folder)
    if request.group_column and not (sites and request.group_column == FOLDER):
        expected = (
            f"'natural:{FOLDER}'"
            if sites
            else "another partition: there are class folders, but no site folders"
        )
        raise not_allowed("partition", f"natural:{request.group_column}", expected)
    depth = 1 if sites else 0
    class_folders = [path for root in roots for path in (root.glob("*/*") if sites else root.iterdir())]
    names = sorted({p.name for p in class_folders if p.is_dir() and not _is_hidden(p, folder)})
    if sites:
        read = f"the folders {_join(sites)} are read as sites, {_join(names)} in them as classes"
        notes.append(Note("clients", read, f"partition natural:{FOLDER}"))
    numbers = {name: number for number, name in enumerate(names)}
    decoder = ImageDecoder(request.image_size)
    parts = []
    others = 0
    for root in roots:
        files = [path for path in sorted(root.rglob("*")) if path.is_file() and not _is_hidden(path, root)]
        images = [p for p in files if is_image(p) and len(p.relative_to(root).parts) > depth + 1]
        if not images:
            raise UserError(f"dataset: no images in the class folders of {str(root)!r}")
        others += len(files) - len(images)
        labels = np.array([numbers[path.relative_to(root).parts[depth]] for path in images], np.int64)
        ids = np.array([path.relative_to(root).parts[0] for path in images])
        pixels = decoder.decode((ImageFile(str(path), path) for path in images), len(images))
        parts.append((pixels, labels, ids))
    if others:
        notes.append(Note("left out", f"{others} files, which are not images in a class folder"))
    present = np.concatenate([labels for _, labels, _ in parts])
    if empty := [name for name, number in numbers.items() if number not in present]:
        notes.append(Note("target", f"no images in the class folders {', '.join(map(repr, empty))}"))
    train, test, held_out = train_and_test(parts)
    classes = Classes(len(names), names, numbered_here=True)
    groups = (train[2], test[2]) if request.group_column else None
    given = bool(groups) and len(roots) > 1
    notes += [*held_out, *decoder.notes()]
    return images_decoded(train[:2], test[:2], classes, groups, notes, tests_by_client=given)


def _roots(folder: Path) -> tuple[list[Path], list[Note]]:
    """Return the folder, or the folders of its splits, and notes."""
    if not (folder / "train").is_dir():
        return [folder], []
    name, notes = find_test_split([path.name for path in folder.iterdir() if path.is_dir()])
    return [folder / split for split in ("train", name) if split], notes


def site_folders(folder: Path) -> list[str]:
    """Return the names of the site folders in a folder, or in its splits; empty if there are none.

    There must be several. Each contains folders of images, and no images of its own. One of them contains
    folders of all class names, of which there are at least two; the names of splits alone do not count.
    """
    below: dict[str, set[str]] = {}
    for root in _roots(folder)[0]:
        for path in _visible(root):
            if path.is_dir():
                found = (p for p in path.rglob("*") if is_image(p) and not _is_hidden(p, path))
                within = [image.relative_to(path).parts for image in found]
                if not within or any(len(parts) == 1 for parts in within):
                    return []
                below.setdefault(path.name, set()).update(parts[0] for parts in within)
    names = set().union(*below.values())
    complete = len(below) > 1 and len(names) > 1 and names in below.values()
    return sorted(below) if complete and not names <= {"train", *TEST_NAMES} else []


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return f"{', '.join(map(repr, names[:MAX_SHOWN]))}{more}"


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)
