"""Read folders of NumPy files."""

from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ..core.errors import UserError
from ..core.notes import Note
from ..data.dataset import Decoded, Request
from ..data.images.kind import Part, channels_first
from ..data.labels import Classes, gaps
from ..data.masks import as_masks, decoded, numbered, with_channels
from ..data.numeric import as_targets, floats_as_classes
from ..data.splits import origins
from .labels import classes_of_folder
from .pictures import decoded_rows
from .unread_files import IN_PYTHON


def has_mask_arrays(folder: Path) -> bool:
    """Return whether a folder holds masks as NumPy files."""
    return (folder / "train-masks.npy").exists()


def decode_numpy_files(request: Request, folder: Path) -> Decoded:
    """Decode ``{train,test}-{images,labels}.npy``, or masks in place of labels, and `classes_of_folder`.

    Images are uint8 (N, height, width), (N, channels, height, width) or (N, height, width, channels). Labels
    are class numbers (N,), or numbers, see `as_targets`; masks (N, height, width) as `masks.numbered` reads
    them. With masks, images may be any numbers, and volumes, which have a depth before the height. Without
    test files, a fifth of each class is held out, or of the masks.

    Raises
    ------
    UserError
        When a file cannot be read, or has another dtype or shape.
    """
    import pandas as pd

    masks = has_mask_arrays(folder)
    kinds = ("images", "masks" if masks else "labels")
    notes: list[Note] = []
    given: list[NDArray] = []

    def read(split: str) -> Part:
        images: NDArray
        labels: NDArray
        try:
            images, labels = (open_memmap(folder / f"{split}-{kind}.npy", mode="r") for kind in kinds)
        except (OSError, ValueError) as error:
            raise UserError(f"dataset: {request.name!r} cannot be read ({error})") from error
        if masks:
            labels = as_masks(labels, f"dataset: {split}-masks.npy")
            x, of_channels = with_channels(images, labels, f"dataset: {split}-images.npy")
            notes.extend(of_channels)
            return x, labels
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or not images.size:
            raise UserError(
                f"dataset: {split}-images.npy holds {images.dtype} {images.shape}, not uint8 images; "
                f"read other arrays {IN_PYTHON}"
            )
        x, of_channels = channels_first(images, f"{split}-images.npy")
        notes.extend(of_channels)
        given.append(labels)
        targets = as_targets(f"dataset: {split}-labels.npy", labels, len(images))
        return np.ascontiguousarray(x), targets

    has_test = any((folder / f"test-{kind}.npy").exists() for kind in kinds)
    parts = [read(split) for split in ("train", "test")[: 1 + has_test]]
    if len({images.shape[1:] for images, _ in parts}) > 1:
        shapes = " and ".join(str(images.shape[1:]) for images, _ in parts)
        raise UserError(
            f"dataset: {request.name!r} has training and test images of different shapes, {shapes}"
        )
    every = [labels for _, labels in parts]
    sizes = {split: len(labels) for split, labels in zip(("train", "test"), every, strict=False)}
    places = [origins.of_items(f"{split}-images.npy", size) for split, size in sizes.items()]
    rows = pd.DataFrame(
        {"split": np.repeat([*sizes], [*sizes.values()]), "origin": list(np.concatenate(places))}
    )
    if masks:
        every, classes, more_notes = numbered(every, "dataset")
        named = classes_of_folder(folder, classes)
    else:
        if len({(labels.ndim, labels.shape[1:]) for labels in every}) > 1:
            shapes = " and ".join(f"{labels.dtype} {labels.shape}" for labels in every)
            raise UserError(f"dataset: {request.name!r} has labels of different kinds, {shapes}")
        every, names, of_floats = floats_as_classes(every, given, request.predict, request.of_site)
        notes += of_floats
        together = np.concatenate(every)
        named, more_notes = Classes(), []
        if together.ndim == 1:
            named = classes_of_folder(folder, 1 + int(together.max()))
            named = named if named.names or not names else Classes(len(names), names)
            more_notes = gaps(together)
    parts = [(images, y) for (images, _), y in zip(parts, every, strict=True)]
    return decoded_rows(request, rows, parts, named, notes, more_notes, make=decoded)
