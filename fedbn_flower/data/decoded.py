"""A dataset decoded once to ``.npy`` files, which every process maps into memory."""

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ..errors import UserError
from ..models.spec import InputSpec
from .sources import ImageRequest, Source, open_source

FORMAT = 1  # of the files below; part of their key


@dataclass(frozen=True, eq=False)
class DecodedSplit:
    """``images`` uint8 (N, channels, height, width) and ``labels`` int64 (N,), memory-mapped; ``groups``
    holds the values of the natural partition column where one was asked for."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    groups: NDArray[np.str_] | None


@dataclass(frozen=True, eq=False)
class DecodedDataset:
    """The two splits of a dataset; ``mean`` and ``std`` are the training set's, per channel, in 0..1."""

    spec: InputSpec
    train: DecodedSplit
    test: DecodedSplit
    mean: tuple[float, ...]
    std: tuple[float, ...]
    folder: Path

    @classmethod
    def without_examples(cls, spec: InputSpec) -> "DecodedDataset":
        """What a server knows of data that it does not have."""
        empty = DecodedSplit(np.empty((0, *spec.shape), np.uint8), np.empty(0, np.int64), None)
        return cls(spec, empty, empty, (0.0,) * spec.channels, (1.0,) * spec.channels, Path())

    @property
    def has_examples(self) -> bool:
        return len(self.train.labels) > 0


def cache_folder(configured: str) -> Path:
    """``cache-dir``, or by default ``$XDG_CACHE_HOME/fedbn-flower``."""
    if configured != "auto":
        return Path(configured).expanduser().resolve()
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedbn-flower"


@lru_cache(maxsize=4)
def load_dataset(request: ImageRequest, cache: Path) -> DecodedDataset:
    """The decoded dataset, decoding it first if no process has yet.

    Raises
    ------
    UserError
        When it cannot be read, or has no images, labels, train or test split.
    """
    return decode_once(open_source(request), request, cache)


def decode_once(source: Source, request: ImageRequest, cache: Path) -> DecodedDataset:
    """The decoded dataset of a source, from the cache if it is there.

    Raises
    ------
    UserError
        As `load_dataset` does.
    """
    key = hashlib.sha256(f"{FORMAT} {source.fingerprint} {request}".encode()).hexdigest()[:24]
    folder = cache / key
    if not (folder / "meta.json").exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with FileLock(cache / f"{key}.lock"):
                if not (folder / "meta.json").exists():
                    _decode(source, folder)
        except OSError as error:
            raise UserError(f"cache-dir: cannot write {cache} ({error})") from error
    return _open(folder)


def _decode(source: Source, folder: Path) -> None:
    """Write the arrays beside their place and move them there whole."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / folder.name
        target.mkdir()
        meta: dict[str, object] = {"source": source.fingerprint}
        classes = source.declared_classes()
        for split in ("train", "test"):
            images, labels, groups = source.read(split)
            classes = max(classes, 1 + int(labels.max(initial=0)))
            np.save(target / f"{split}-images.npy", images)
            np.save(target / f"{split}-labels.npy", labels)
            if groups is not None:
                np.save(target / f"{split}-groups.npy", groups)
            if split == "train":
                # Chunked: a float copy of the whole training set would be eight times its size.
                chunks = np.array_split(images, max(1, len(images) // 4096))
                sums = sum(c.sum((0, 2, 3), dtype=np.float64) for c in chunks)
                squares = sum(np.square(c, dtype=np.float64).sum((0, 2, 3)) for c in chunks)
                count = images[:, 0].size
                mean = sums / count
                std = np.sqrt(np.maximum(squares / count - mean**2, 0))
                meta["mean"] = (mean / 255).tolist()
                meta["std"] = (np.where(std > 0, std, 255) / 255).tolist()
        for path in target.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        (target / "meta.json").write_text(json.dumps(meta | {"classes": classes}))
        target.rename(folder)


def _open(folder: Path) -> DecodedDataset:
    meta = json.loads((folder / "meta.json").read_text())

    def split(name: str) -> DecodedSplit:
        groups = folder / f"{name}-groups.npy"
        return DecodedSplit(
            np.asarray(
                np.load(folder / f"{name}-images.npy", mmap_mode="r")
            ),  # still mapped, faster to index
            np.load(folder / f"{name}-labels.npy"),
            np.load(groups) if groups.exists() else None,
        )

    train = split("train")
    channels, height, width = train.images.shape[1:]
    spec = InputSpec(channels, height, width, meta["classes"])
    mean, std = tuple(meta["mean"]), tuple(meta["std"])
    return DecodedDataset(spec, train, split("test"), mean, std, folder)
