"""Read images and their masks from two folders, ``images`` and ``masks``, perhaps of several sites."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError
from ..core.notes import Note
from ..core.text import number_of
from ..data.dataset import Decoded, Request
from ..data.masks import numbered
from .decoding import ImageDecoder, Pixels, is_image, name_of_image
from .held_out import split_folders
from .labels import CLASS_NAMES, classes_of_folder
from .mask_files import MaskDecoder
from .picture_names import MASK_ENDING
from .pictures import by_split, decoded_rows, files_of, in_order, refuse_other_sites, whose
from .unread_files import counted, refuse_unread
from .walk import Walk, walk

if TYPE_CHECKING:
    from pandas import DataFrame

IMAGES, MASKS = "images", "masks"


class Pair(NamedTuple):
    """An image, its mask, its site, empty without sites, and its split."""

    path: Path
    mask: Path
    site: str
    split: str


class Context(NamedTuple):
    """Where files lie, but for the folder ``images`` or ``masks``: its folders above, and those below."""

    above: tuple[str, ...]
    below: tuple[str, ...]

    @property
    def folders(self) -> tuple[str, ...]:
        return self.above + self.below


def has_mask_folders(found: Walk) -> bool:
    """Return whether it holds ``images`` and ``masks``, or a folder in it does."""
    folders = {(path.parent, path.name.lower()) for path in found.folders}
    return any((parent, MASKS) in folders for parent, name in folders if name == IMAGES)


def has_mask_sites(folder: Path) -> bool | None:
    """Return whether a folder's images and masks are those of sites; None if it holds none."""
    try:
        found = walk(folder)
    except OSError:  # the folder is refused where it is read
        return None
    if not has_mask_folders(found):
        return None
    splits, _ = _splits(_by_context(found, IMAGES))
    return all(_site(context, splits) for context in _by_context(found, IMAGES))


def decode_mask_folders(request: Request, found: Walk) -> Decoded:
    """Decode images and masks in the order of their paths; the sites are the clients of ``natural:folder``.

    A mask has the name of its image, perhaps with `MASK_ENDING`, and any suffix of images. The folder above
    ``images``, or that below it, names the site: ``lyon/images/1.png`` or ``images/lyon/1.png``. So do
    ``train`` and ``test``. Without a test split a fifth is held out, of each site if there are sites. For the
    names of classes see `classes_of_folder`.

    Files of several pages have a mask of one page, and their pages are channels; or masks of as many pages,
    and they are volumes.

    Raises
    ------
    UserError
        For an image without a mask, a file that cannot be read, sizes that differ, masks whose values are no
        class numbers, or ``natural`` without sites.
    """
    import pandas as pd

    images = _by_context(found, IMAGES)
    splits, notes = _splits(images)
    notes += found.notes()
    pairs, seen = _paired(found, images, splits, notes)
    if not pairs:
        refuse_unread(request.name, found.files)
        raise UserError(f"dataset: no images with masks in the folders {IMAGES!r} of {request.name!r}")
    sites = all(pair.site for pair in pairs)
    refuse_other_sites(request, sites, "another partition: there are no folders of sites")
    if others := [path for path in found.files if path not in seen]:
        notes.append(Note("left out", f"{counted(others)}: not pictures in {IMAGES!r} or {MASKS!r}"))
    rows = in_order(pd.DataFrame(pairs), found.root)
    x, y, of_masks = _decoded(request, rows, notes)
    (y,), classes, of_values = numbered([y], "dataset", [rows["site"].to_numpy(np.str_)])
    patients = whose(request, rows["path"].tolist(), found.root)
    rows, named = rows.assign(group=patients.groups), classes_of_folder(found.root, classes)
    notes, parts = [*notes, *patients.notes], by_split(rows, x, y)
    return decoded_rows(request, rows, parts, named, notes, [*of_masks, *of_values], patients.by)


def _decoded(
    request: Request, rows: "DataFrame", notes: list[Note]
) -> tuple[Pixels, NDArray[np.uint8], list[Note]]:
    """Return images and masks, and notes on the masks; add those on the images."""
    decoder, masks = ImageDecoder(*request.sampling), MaskDecoder(*request.sampling[:2])
    x = decoder.decode(files_of(rows["path"]), len(rows))
    y = masks.decode(files_of(rows["mask"]), decoder.grids, decoder.pages)
    volumes = y.ndim > 3
    notes += decoder.notes(volumes)
    if volumes:
        what = f"of {decoder.pages} pages each " if decoder.pages > 1 else ""
        notes.append(Note("inputs", f"{len(rows)} images and masks {what}are volumes"))
    if volumes and decoder.pages > 1:
        x = _as_volumes(x, decoder.pages)
    return x, y, masks.notes()


def _as_volumes(images: Pixels, depth: int) -> Pixels:
    """Return images (N, pages * channels, ...) as volumes (N, channels, pages, ...)."""
    count, channels, *sizes = images.shape
    return np.ascontiguousarray(images.reshape(count, depth, channels // depth, *sizes).swapaxes(1, 2))


def _by_context(found: Walk, kind: str) -> dict[Context, list[Path]]:
    """Return the pictures in folders called ``images`` or ``masks`` by where they lie, in order."""
    paths: dict[Context, list[Path]] = {}
    for path in filter(is_image, found.files):
        folders = found.parts(path)[:-1]
        places = [place for place, folder in enumerate(folders) if folder.lower() == kind]
        if places:
            context = Context(folders[: places[0]], folders[places[0] + 1 :])
            paths.setdefault(context, []).append(path)
    return paths


def _splits(contexts: Iterable[Context]) -> tuple[dict[str, str], list[Note]]:
    """Return which folders are ``train`` and ``test``, and notes; empty without a split."""
    return split_folders(sorted({folder for context in contexts for folder in context.folders}))


def _split(context: Context, splits: Mapping[str, str]) -> str:
    return next((splits[folder] for folder in context.folders if folder in splits), "")


def _site(context: Context, splits: Mapping[str, str]) -> str:
    return next((folder for folder in context.folders if folder not in splits), "")


def _paired(
    found: Walk, images: Mapping[Context, list[Path]], splits: Mapping[str, str], notes: list[Note]
) -> tuple[list[Pair], set[Path]]:
    """Return the pairs, and the files that they or notes speak of; add notes on what has no partner."""
    masks, seen = _by_context(found, MASKS), {found.root / CLASS_NAMES}
    pairs: list[Pair] = []
    for context in sorted(images):
        split = _split(context, splits) if splits else "train"
        if not split:
            continue
        folder = images[context][0].parent
        seen |= {*images[context], *masks.get(context, [])}
        if context not in masks:
            where = folder.relative_to(found.root).as_posix()
            notes.append(
                Note(
                    "left out", f"{number_of(len(images[context]), 'image')} in {where!r}, which has no masks"
                )
            )
            continue
        pairs += _pairs(images[context], masks[context], _site(context, splits), split, notes)
    return pairs, seen


def _pairs(
    images: Sequence[Path], masks: Sequence[Path], site: str, split: str, notes: list[Note]
) -> Iterator[Pair]:
    """Yield the pairs of two folders, in the order of the images' names; add a note on masks left over."""
    by_name: dict[str, Path] = {}
    for path in masks:
        by_name.setdefault(MASK_ENDING.sub("", name_of_image(path)), path)
    by_name |= {name_of_image(path): path for path in masks}
    used = set()
    for image in images:
        mask = by_name.get(name_of_image(image))
        if mask is None:
            lacking = sum(name_of_image(path) not in by_name for path in images)
            others = f" ({lacking} of {len(images)} images have none)" if lacking > 1 else ""
            raise UserError(f"dataset: {image} has no mask of its name in {str(masks[0].parent)!r}{others}")
        used.add(mask)
        yield Pair(image, mask, site, split)
    if left := len(masks) - len(used):
        notes.append(
            Note("left out", f"{number_of(left, 'mask')} without an image in {str(masks[0].parent)!r}")
        )
