"""Folders of pictures, a folder a class; and of NumPy files."""

from pathlib import Path

import numpy as np

from ..errors import UserError
from .dataset import Decoded, Request
from .images import images_decoded
from .labels import Classes
from .pictures import ENDINGS, File, Pictures
from .splits import both_splits, test_split

# ---- a folder a class -------------------------------------------------------------------------------


def has_class_folders(folder: Path) -> bool:
    """Whether it holds pictures as ``CLASS/1.png`` or ``train/CLASS/1.png``, and no ``metadata`` of them."""
    root = folder / "train" if (folder / "train").is_dir() else folder
    return not any(root.glob("metadata.*")) and any(map(_is_picture, root.glob("*/**/*")))


def class_folders_decoded(request: Request, folder: Path) -> Decoded:
    """Pictures by class, in the order of their paths; the classes in that of their names, as torchvision and
    `datasets` number them. A folder without pictures is a class too.

    Raises
    ------
    UserError
        For a picture that cannot be read, or splits without one.
    """
    in_splits = (folder / "train").is_dir()
    name, notes = test_split([p.name for p in folder.iterdir() if p.is_dir()] if in_splits else [])
    roots = [folder / split for split in ("train", name) if split] if in_splits else [folder]
    names = sorted({path.name for root in roots for path in _visible(root) if path.is_dir()})
    numbers = {name: number for number, name in enumerate(names)}
    pictures = Pictures(request.image_size)
    parts = []
    others = 0
    for root in roots:
        files = [path for path in sorted(root.rglob("*")) if path.is_file() and not _is_hidden(path, root)]
        own = [path for path in files if _is_picture(path) and path.parent != root]
        if not own:
            raise UserError(f"dataset: no images in the class folders of {str(root)!r}")
        others += len(files) - len(own)
        labels = np.array([numbers[path.relative_to(root).parts[0]] for path in own], np.int64)
        parts.append((pictures.stacked((File(str(path), path) for path in own), len(own)), labels))
    if others:
        notes.append(f"dataset: {others} files that are no pictures in a class's folder are left out")
    present = np.concatenate([labels for _, labels in parts])
    if empty := [name for name, number in numbers.items() if number not in present]:
        notes.append(f"dataset: no images in the class folders {', '.join(map(repr, empty))}")
    train, test, held_out = both_splits(parts)
    classes = Classes(len(names), names, numbered_here=True)
    return images_decoded(train[:2], test[:2], classes, notes=[*notes, *held_out, *pictures.notes()])


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")
