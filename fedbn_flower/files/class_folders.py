"""Read image folders: one folder per class, or one folder per site with class folders in it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.errors import UserError
from ..core.notes import Note
from ..core.text import quoted
from ..data.dataset import Decoded, Request
from ..data.labels import Classes, alike
from ..data.scans import largest_of_studies
from .decoding import ImageDecoder, is_image
from .held_out import TEST_NAMES, TRAIN_NAMES, split_folders
from .picture_names import NUMBERED, of_masks, of_people
from .pictures import FOLDER, by_split, decoded_rows, files_of, in_order, refuse_other_sites, whose
from .unread_files import counted, is_metadata, refuse_unread_folders
from .walk import Walk, walk

DECIDES = f"partition natural:{FOLDER}"
NO_SITES = "another partition: there are class folders, but no site folders"
MAX_SHOWN = 5
SPLIT_NAMES = frozenset({*TRAIN_NAMES, *TEST_NAMES})
ORDER = "the order of the two levels"


class Labelled(NamedTuple):
    """A picture, or an empty folder, and what the folders say of it; empty texts where they say nothing.

    Parameters
    ----------
    path : Path
        The picture.
    split : str
        ``train``, ``test``, or neither.
    site, label : str
        Names of folders.
    """

    path: Path
    split: str
    site: str
    label: str


class Layout(NamedTuple):
    """Which level of folders, counted from 0, says what; None where none does.

    Parameters
    ----------
    splits : dict[str, str]
        Whether a folder at the level ``split`` is ``train`` or ``test``, by its name.
    split, site, label : int, optional
        The levels.
    """

    splits: dict[str, str]
    split: int | None
    site: int | None
    label: int

    def read(self, path: Path, folders: Sequence[str]) -> Labelled | None:
        """Return what these folders say of a path; None if they say no class, or another split."""
        if len(folders) <= max(self.label, self.split or 0):
            return None
        split = "train" if self.split is None else self.splits.get(folders[self.split], "")
        if not split:
            return None
        return Labelled(path, split, "" if self.site is None else folders[self.site], folders[self.label])

    def leaves_out(self, parts: Sequence[str]) -> bool:
        """Return whether a path is in a split that is not used, though it has class folders."""
        place = self.split
        if place is None or len(parts) <= place + 2:
            return False
        return parts[place].lower() in SPLIT_NAMES and parts[place] not in self.splits


def has_class_folders(found: Walk) -> bool:
    """Return whether it has images as ``CLASS/1.png`` or ``train/CLASS/1.png``, and no ``metadata`` file."""
    with_table = {found.root, *(found.root / name for name in TRAIN_NAMES)}
    if any(is_metadata(path) and path.parent in with_table for path in found.files):
        return False
    return any(is_image(path) and path.parent != found.root for path in found.files)


def has_class_sites(folder: Path) -> bool:
    """Return whether a folder's pictures are read as those of sites, ``SITE/CLASS/1.png``."""
    try:
        found = walk(folder)
    except (OSError, UserError):  # the folder is refused where it is read
        return False
    pictures = [found.parts(path)[:-1] for path in found.files if is_image(path)]
    return has_class_folders(found) and layout_of(pictures, by_site=False)[0].site is not None


def layout_of(pictures: Iterable[Sequence[str]], by_site: bool) -> tuple[Layout, list[Note]]:
    """Return which level of the pictures' folders is what, and notes on splits.

    1. A level is that of splits if it is the first and has a folder ``train`` with folders of pictures in it,
       or if the folders of all pictures have a split's name there, as in ``SITE/train/CLASS``.
    2. Of the other levels, the first is that of the sites if ``by_site``, or if a split is below it and a
       class below that. Else it is so if at least half of the pictures lie in folders of the second level
       whose names occur in several of the first, and there are at least two names. Names such as
       ``patient_12`` do not count: a patient may occur in several classes. Nor do folders in one that has as
       many pictures of its own.
    3. The level of the classes is the one after that of the sites, else the first. What lies below belongs to
       the class.
    """
    rows = [tuple(folders) for folders in pictures if folders]
    level, splits, notes = _splits(rows)
    if level is not None:
        rows = [row for row in rows if len(row) > level and row[level] in splits]
    rest = [row[:level] + row[level + 1 :] for row in rows] if level is not None else rows
    deep = [row for row in rest if len(row) > 1]
    sites = by_site or (level == 1 and 2 * len(deep) >= len(rest)) or _names_recur(rest)
    places = [place for place in range(3) if place != level]
    return Layout(splits, level, places[0] if sites else None, places[1] if sites else places[0]), notes


def _splits(rows: Sequence[tuple[str, ...]]) -> tuple[int | None, dict[str, str], list[Note]]:
    """Return the level of the splits, which of its folders are used as what, and notes."""
    top = {row[0] for row in rows if len(row) > 1}
    splits, notes = split_folders(top)
    if splits:
        return 0, splits, notes
    for level in (1, 2):
        if not all(len(row) > level and row[level].lower() in SPLIT_NAMES for row in rows):
            return None, {}, []
        splits, notes = split_folders(sorted({row[level] for row in rows}))
        if splits:
            return level, splits, notes
    return None, {}, []


def _names_recur(rows: Sequence[tuple[str, ...]]) -> bool:
    """Return whether most pictures are in folders whose names occur below several folders."""
    own = Counter(row[0] for row in rows if len(row) == 1)
    within = Counter((row[0], row[1].casefold()) for row in rows if len(row) > 1)
    smallest: dict[str, int] = {}
    for (folder, _), n in within.items():
        smallest[folder] = min(n, smallest.get(folder, n))
    above: dict[str, set[str]] = {}
    for folder, name in within:
        if own[folder] < smallest[folder] and not NUMBERED.fullmatch(name) and name not in SPLIT_NAMES:
            above.setdefault(name, set()).add(folder)
    shared = {name for name, folders in above.items() if len(folders) > 1}
    explained = sum(n for (folder, name), n in within.items() if name in shared and folder in above[name])
    return len(above) > 1 and bool(shared) and 2 * explained >= len(rows)


def decode_class_folders(request: Request, found: Walk) -> Decoded:
    """Decode images in the order of their paths, labelled by folder, see `layout_of`.

    Classes are numbered in the order of their names, as torchvision and `datasets` number them. An empty
    folder is a class too; one that holds other files only is left out. The sites are the clients of
    ``natural:folder``.

    Raises
    ------
    UserError
        For an image that cannot be read, a split without images, or ``natural`` without site folders.
    """
    import pandas as pd

    pictures, smaller = largest_of_studies([path for path in found.files if is_image(path)])
    by_site = request.group_column == FOLDER
    layout, notes = layout_of([found.parts(path)[:-1] for path in pictures], by_site)
    labelled = [one for path in pictures if (one := layout.read(path, found.parts(path)[:-1])) is not None]
    refuse_other_sites(request, layout.site is not None and bool(labelled), NO_SITES)
    used = {one.path for one in labelled}
    seen = used.union(smaller)
    others = [path for path in found.files if path not in seen and not layout.leaves_out(found.parts(path))]
    refuse_unread_folders(found, {one.path.parent for one in labelled})
    notes += [*found.notes(smaller), *_of_layout(request, found, layout, labelled)]
    own = ["/".join(found.parts(one.path)[layout.label + 1 :]) for one in labelled]
    patients = whose(request, [one.path for one in labelled], found.root, own)
    notes += patients.notes
    notes += _not_in_a_class(found, others)
    empty = _empty(found, layout)
    names = sorted({one.label for one in labelled} | {one.label for one in empty})
    first = found.parts(labelled[0].path) if labelled else ()
    notes += [*of_people(Counter(one.label for one in labelled), first), *of_masks(used)]
    for split in ("train", *layout.splits.values()):
        if all(one.split != split for one in labelled):
            raise UserError(f"dataset: no images in the class folders of {split!r} in {request.name!r}")
    if lacking := sorted({*names} - {one.label for one in labelled}):
        notes.append(Note("target", f"no images in the class folders {', '.join(map(repr, lacking))}"))
    if len(names) == 1 and not request.of_site:
        only = f"{names[0]!r} is the only class: there is nothing to tell it from"
        within = any(note.decided_by for note in notes)
        further = f"; if the folders in it are classes, the dataset is {request.name}/{names[0]}"
        notes.append(Note("target", f"{only}{further if within else ''}"))
    rows = in_order(pd.DataFrame(labelled).assign(group=patients.groups), found.root)
    decoder = ImageDecoder(*request.sampling)
    x, y = decoder.decode(files_of(rows["path"]), len(rows)), pd.Index(names).get_indexer(rows["label"])
    classes = Classes(len(names), names, numbered_here=True)
    parts, notes = by_split(rows, x, y.astype(np.int64)), [*notes, *alike(names)]
    return decoded_rows(request, rows, parts, classes, notes, decoder.notes(), patients.by)


def _not_in_a_class(found: Walk, others: Sequence[Path]) -> list[Note]:
    """Return notes on files that are left out: pictures of a split without class folders, and any others."""
    of_split: dict[str, list[Path]] = {}
    for path in others:
        parts = found.parts(path)
        is_split = len(parts) == 2 and parts[0].lower() in SPLIT_NAMES and is_image(path)
        of_split.setdefault(parts[0] if is_split else "", []).append(path)
    rest = of_split.pop("", [])
    notes = [
        Note("left out", f"{counted(paths)} in {split!r}: no class folders in it, so nothing labels them")
        for split, paths in of_split.items()
    ]
    return [*notes, Note("left out", f"{counted(rest)}: not pictures in a class folder")] if rest else notes


def _of_layout(request: Request, found: Walk, layout: Layout, labelled: Sequence[Labelled]) -> list[Note]:
    """Return a note on which folders are sites and which classes, if there are several levels."""
    names = sorted({one.label for one in labelled})
    if layout.site is not None:
        sites = sorted({one.site for one in labelled})
        read = f"the folders {quoted(sites, MAX_SHOWN)} are read as sites"
        read += f", {quoted(names, MAX_SHOWN)} in them as classes"
        if request.group_column:
            return [Note("clients", read)]
        clients = "" if request.of_site else f"; {DECIDES} makes a client of each"
        return [Note("clients", f"{read}{clients}", "" if layout.split == 1 else ORDER)]
    below = layout.label + 1 + (layout.split == layout.label + 1)
    rows = [found.parts(one.path)[:-1] for one in labelled]
    within = sorted({row[below] for row in rows if len(row) > below})
    if not within:
        return []
    read = f"the folders {quoted(names, MAX_SHOWN)} are read as classes"
    return [Note("clients", f"{read}, {quoted(within, MAX_SHOWN)} in them as parts of a class", DECIDES)]


def _empty(found: Walk, layout: Layout) -> list[Labelled]:
    """Return the class folders that hold no file at all."""
    filled = {folder for path in found.files for folder in path.parents}
    empty = (folder for folder in found.folders if folder not in filled)
    read = ((folder, found.parts(folder)) for folder in empty)
    depth = max(layout.label, layout.split or 0) + 1
    return [
        one
        for folder, parts in read
        if len(parts) == depth and (one := layout.read(folder, parts)) is not None
    ]
