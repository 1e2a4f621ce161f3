"""Folders of pictures: a folder a class, or a folder a site, of folders of classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...core.errors import UserError, not_allowed
from ..dataset import Decoded, Request
from ..images.decoding import ENDINGS, File, Pictures
from ..images.kind import images_decoded
from ..labels import Classes
from ..splits import TEST_NAMES, both_splits, test_split

FOLDER = "folder"
"""The column of a natural partition by site."""
SHOWN = 5

# ---- a folder a class -------------------------------------------------------------------------------


def has_class_folders(folder: Path) -> bool:
    """Whether it holds pictures as ``CLASS/1.png`` or ``train/CLASS/1.png``, and no ``metadata`` of them."""
    root = folder / "train" if (folder / "train").is_dir() else folder
    return not any(root.glob("metadata.*")) and any(map(_is_picture, root.glob("*/**/*")))


def class_folders_decoded(request: Request, folder: Path) -> Decoded:
    """Pictures by class, in the order of their paths; the classes in that of their names, as torchvision and
    `datasets` number them. A folder without pictures is a class too. Of folders of sites (`site_folders`) the
    ones below are the classes, and the sites those of ``natural:folder``.

    Raises
    ------
    UserError
        For a picture that cannot be read, splits without one, or sites that are asked for and not there.
    """
    roots, notes = _roots(folder)
    sites = site_folders(folder)
    if request.group_column and not (sites and request.group_column == FOLDER):
        expected = (
            f"'natural:{FOLDER}'" if sites else "another one: it holds folders of classes, none of sites"
        )
        raise not_allowed("partition", f"natural:{request.group_column}", expected)
    depth = 1 if sites else 0
    of_classes = [path for root in roots for path in (root.glob("*/*") if sites else root.iterdir())]
    names = sorted({p.name for p in of_classes if p.is_dir() and not _is_hidden(p, folder)})
    if sites:
        notes.append(
            f"dataset: the folders {_listed(sites)} hold folders of the same names: they are taken for "
            f"sites, {_listed(names)} for the classes; partition natural:{FOLDER} makes each a client"
        )
    numbers = {name: number for number, name in enumerate(names)}
    pictures = Pictures(request.image_size)
    parts = []
    others = 0
    for root in roots:
        files = [path for path in sorted(root.rglob("*")) if path.is_file() and not _is_hidden(path, root)]
        own = [path for path in files if _is_picture(path) and len(path.relative_to(root).parts) > depth + 1]
        if not own:
            raise UserError(f"dataset: no images in the class folders of {str(root)!r}")
        others += len(files) - len(own)
        labels = np.array([numbers[path.relative_to(root).parts[depth]] for path in own], np.int64)
        ids = np.array([path.relative_to(root).parts[0] for path in own])
        parts.append((pictures.stacked((File(str(path), path) for path in own), len(own)), labels, ids))
    if others:
        notes.append(f"dataset: {others} files that are no pictures in a class's folder are left out")
    present = np.concatenate([labels for _, labels, _ in parts])
    if empty := [name for name, number in numbers.items() if number not in present]:
        notes.append(f"dataset: no images in the class folders {', '.join(map(repr, empty))}")
    train, test, held_out = both_splits(parts)
    classes = Classes(len(names), names, numbered_here=True)
    groups = (train[2], test[2]) if request.group_column else None
    return images_decoded(train[:2], test[:2], classes, groups, [*notes, *held_out, *pictures.notes()])


def _roots(folder: Path) -> tuple[list[Path], list[str]]:
    """The folder, or those of its splits, and what is to be told of them."""
    if not (folder / "train").is_dir():
        return [folder], []
    name, notes = test_split([path.name for path in folder.iterdir() if path.is_dir()])
    return [folder / split for split in ("train", name) if split], notes


def site_folders(folder: Path) -> list[str]:
    """The folders in it, or in those of its splits, where each holds no pictures but folders of them, and one
    holds folders of all the names there are, at least two that are not those of splits; empty elsewhere."""
    below: dict[str, set[str]] = {}
    for root in _roots(folder)[0]:
        for path in _visible(root):
            if path.is_dir():
                found = (p for p in path.rglob("*") if _is_picture(p) and not _is_hidden(p, path))
                within = [picture.relative_to(path).parts for picture in found]
                if not within or any(len(parts) == 1 for parts in within):
                    return []
                below.setdefault(path.name, set()).update(parts[0] for parts in within)
    names = set().union(*below.values())
    alike = len(below) > 1 and len(names) > 1 and names in below.values()
    return sorted(below) if alike and not names <= {"train", *TEST_NAMES} else []


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(map(repr, names[:SHOWN]))}{more}"


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")
