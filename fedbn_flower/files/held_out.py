"""What of a folder is to be tested on: its splits by name, or a fifth of its images."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError
from ..core.notes import Note
from ..core.text import number_of
from ..data.splits import Rows, held_out_fifth, held_out_groups

TRAIN_NAMES = ("train", "training")
"""Names of the split to train on, in order of preference."""
TEST_NAMES = ("test", "testing", "validation", "valid", "val")
"""Names of a held-out split, in order of preference."""


def find_test_split(names: Sequence[str]) -> tuple[str | None, list[Note]]:
    """Return the split to test on, if there is one, and a note if it is not named ``test``."""
    found = next((name for name in TEST_NAMES if name in names), None)
    renamed = found not in (None, *TEST_NAMES[:2])
    return found, [
        Note("examples", f"no split 'test': the split {found!r} is the test set")
    ] if renamed else []


def split_folders(names: Iterable[str]) -> tuple[dict[str, str], list[Note]]:
    """Return which folders are ``train`` and which ``test``, by name, and notes; empty without ``train``.

    Names may be in any case, such as ``Training``. Of several held-out splits one is used, see `TEST_NAMES`.
    """
    by_lower: dict[str, list[str]] = {}
    for name in names:
        by_lower.setdefault(name.lower(), []).append(name)
    train = next((name for name in TRAIN_NAMES if name in by_lower), None)
    if train is None:
        return {}, []
    test, notes = find_test_split(list(by_lower))
    if unused := [name for name in TEST_NAMES if name in by_lower and name != test]:
        notes.append(Note("left out", f"the split {', '.join(map(repr, unused))}: {test!r} is the test set"))
    used = {name: "train" for name in by_lower[train]}
    return used | {name: "test" for name in (by_lower[test] if test else ())}, notes


def of_split_columns(columns: Mapping[str, Collection[object]], advice: str) -> list[Note]:
    """Return a note on each column, given with its distinct values, that says what is to be tested on."""
    notes = []
    for column, values in columns.items():
        words = {str(value).strip().lower() for value in values}
        if words & {*TRAIN_NAMES} and words & {*TEST_NAMES} and words <= {*TRAIN_NAMES, *TEST_NAMES}:
            named = " and ".join(repr(str(value)) for value in sorted(values, key=str))
            notes.append(Note("examples", f"the column {column!r} of {named} divides nothing: {advice}"))
    return notes


def held_out_images(
    targets: NDArray, owners: NDArray | None, groups: NDArray | None = None, grouped_by: str = ""
) -> tuple[Rows, Rows, Note]:
    """Return the training rows and the test rows of images without a test set, and a note.

    A fifth of each class of each owner is held out; of masks a fifth of each owner; and of groups, (N,),
    which are called ``grouped_by``, a fifth of these, see `held_out_groups`.

    Raises
    ------
    UserError
        When there are fewer than five images.
    """
    count, masks = len(targets), targets.ndim > 2
    if groups is not None:
        train, test = held_out_groups(targets, groups, owners)
    else:
        train, test = held_out_fifth(np.zeros(count) if masks else targets, owners)
    if count < 5:
        raise UserError(f"dataset: {number_of(count, 'image')} without a test split; expected at least 5")
    of_each = ["site"] * (owners is not None and len({*owners.tolist()}) > 1) + ["class"] * (not masks)
    share = " ".join(["20 %", *(["per", " and ".join(of_each)] if of_each else ())])
    share = f"those of a fixed fifth of the groups by {grouped_by!r}" if grouped_by else share
    held_out = f"no test split: {len(test)} of {count} images ({share}) are held out"
    return train, test, Note("examples", held_out)
