"""Cache decoded datasets as ``.npy`` files, which every process maps into memory."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from .. import annexes
from ..core.errors import os_errors_as_user_errors
from ..core.files import path_of, sha256_of
from ..core.notes import WITHOUT_TEST, Note
from ..core.process_cache import process_cache
from .dataset import Dataset, Decoded, Request, Split
from .images.shift_spec import PLAIN
from .sources import ARRAYS, KINDS, Source, open_source

FORMAT = 12  # version of the cached files; part of the cache key
SPLITS = ("train", "test")
UNIT_NAMES = "unit-names.npy"
TOO = Note("examples", "those of the test set that is given are divided into folds, too")


def cache_folder(configured: str) -> Path:
    """Return ``cache-dir``; for ``auto``, ``$XDG_CACHE_HOME/fedbn-flower`` (or ``~/.cache/fedbn-flower``)."""
    if configured != "auto":
        return path_of(configured).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedbn-flower"


@process_cache(maxsize=4)
def load_dataset(request: Request, cache: Path) -> Dataset:
    """Return the decoded dataset; decode it first if it is not in the cache.

    Raises
    ------
    UserError
        When the dataset cannot be read, or lacks a requested column or split.
    """
    if request.feature_shift != PLAIN:
        plain = load_dataset(replace(request, feature_shift=PLAIN), cache)
        shift_images: Callable[[Dataset, str], Decoded] = annexes.load("shifts", "images", "feature-shift")
        source = Source(plain.folder.name, lambda: shift_images(plain, request.feature_shift))
        return decode_once(source, request, cache)
    if request.joined:
        parts = load_dataset(replace(request, joined=False), cache)
        whole = decode_once(Source(parts.folder.name, lambda: _joined(parts)), request, cache)
        return replace(whole, test=whole.train)
    source = open_source(request)
    if request.name.startswith(ARRAYS):
        request = Request(request.name)  # the name holds the hash of the arrays
    return decode_once(source, request, cache)


def _joined(dataset: Dataset) -> Decoded:
    """Return all examples of a dataset as its training set, and none as its test set."""
    every = dataset.train.and_then(dataset.test)
    notes = [note for note in dataset.notes if not note.text.startswith(WITHOUT_TEST)]
    return Decoded(
        next(name for name, kind in KINDS.items() if type(dataset.kind) is kind),
        every,
        every.at(slice(0)),
        dataset.kind.facts,
        dataset.class_names,
        tuple(notes) if len(notes) < len(dataset.notes) else (*notes, TOO),
    )


def decode_once(source: Source, request: Request, cache: Path) -> Dataset:
    """Return the decoded dataset of a source, from the cache if possible.

    Raises
    ------
    UserError
        See `load_dataset`.
    """
    key = hashlib.sha256(f"{FORMAT} {source.fingerprint} {request}".encode()).hexdigest()[:24]
    folder = cache / key
    with os_errors_as_user_errors("cache-dir", f"read {cache}"):
        done = (folder / "meta.json").exists()
    if not done:
        with os_errors_as_user_errors("cache-dir", f"write {cache}"):
            cache.mkdir(parents=True, exist_ok=True)
            with FileLock(cache / f"{key}.lock"):
                if not (folder / "meta.json").exists():
                    with os_errors_as_user_errors("dataset", f"read {request.name!r}"):
                        decoded = source.decode()
                    _write(decoded, source.fingerprint, folder)
    with os_errors_as_user_errors("cache-dir", f"read {cache}"):
        return _open(folder)


def _write(decoded: Decoded, fingerprint: str, folder: Path) -> None:
    """Write the arrays to a temporary folder next to ``folder``, then rename it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / folder.name
        target.mkdir()
        for split, rows in zip(SPLITS, (decoded.train, decoded.test), strict=True):
            of_rows = {name: getattr(rows, name) for name in ("groups", "units", "origins")}
            subgroups = np.stack([*rows.subgroups.values()]) if rows.subgroups else None
            columns = {f"column-{name}": column for name, column in rows.columns.items()}
            arrays = {**columns, **of_rows, "subgroups": subgroups}
            for name, array in arrays.items():
                if array is not None:
                    np.save(target / f"{split}-{name}.npy", array)
        if decoded.train.unit_names is not None:
            np.save(target / UNIT_NAMES, decoded.train.unit_names)
        for path in target.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        meta = {
            "source": fingerprint,
            "digest": _digest(decoded),
            "kind": decoded.kind,
            "facts": decoded.facts,
            "class-names": decoded.class_names,
            "notes": decoded.notes,
            "subgroups": list(decoded.train.subgroups),
        }
        (target / "meta.json").write_text(json.dumps(meta))
        target.rename(folder)


def _digest(decoded: Decoded) -> str:
    """Return the SHA-256 digest of the columns, and units: names, dtypes, shapes and contents."""
    splits = decoded.train, decoded.test
    arrays = [pair for split in splits for pair in sorted(split.columns.items())]
    arrays += [("units", split.units) for split in splits if split.units is not None]
    return sha256_of((f"{name} {array.dtype} {array.shape}", array) for name, array in arrays)


def _open(folder: Path) -> Dataset:
    meta = json.loads((folder / "meta.json").read_text())

    def mapped(name: str) -> NDArray | None:
        path = folder / name
        return np.load(path, mmap_mode="r") if path.exists() else None

    def split(name: str) -> Split:
        columns = {
            # A plain view of the memory map is faster to index.
            path.stem.removeprefix(f"{name}-column-"): np.asarray(np.load(path, mmap_mode="r"))
            for path in sorted(folder.glob(f"{name}-column-*.npy"))
        }
        of_rows = (folder / f"{name}-{what}.npy" for what in ("groups", "units", "subgroups"))
        groups, units, found = (np.load(path) if path.exists() else None for path in of_rows)
        subgroups = dict(zip(meta["subgroups"], () if found is None else found, strict=True))
        return Split(columns, groups, units, mapped(UNIT_NAMES), mapped(f"{name}-origins.npy"), subgroups)

    train = split("train")
    kind = KINDS[meta["kind"]](meta["facts"], train.columns)
    names, notes = tuple(meta["class-names"]), tuple(starmap(Note, meta["notes"]))
    return Dataset(
        kind.spec(),
        kind.problem(),
        kind,
        train,
        split("test"),
        folder,
        names,
        notes,
        meta["digest"],
    )
