"""A caller's own NumPy arrays as a dataset: decoded once, and found again by a name that tells their hash."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .cache import decode_once
from .dataset import Request
from .images import Part, images_decoded
from .sources import ARRAYS, Source

PARTS = ("x", "y", "x_test", "y_test")
IMAGES = "uint8 images (N, height, width) or (N, channels, height, width)"


def keep_arrays(data: Sequence[Any], cache: Path) -> str:
    """Put arrays into the cache; the name by which `load_dataset` finds them there.

    Parameters
    ----------
    data : (x, y, x_test, y_test)
        uint8 images (N, height, width) or (N, channels, height, width), and class numbers (N,), for training
        and for testing.
    cache : Path
        The run's `cache_folder`.

    Raises
    ------
    UserError
        When they are something else.
    """
    if not isinstance(data, tuple | list) or len(data) != len(PARTS):
        raise UserError(f"data: expected the four arrays ({', '.join(PARTS)})")
    for name, array in zip(PARTS, data, strict=True):
        if not isinstance(array, np.ndarray):
            raise UserError(f"data: {name} is of type {type(array).__name__}; expected a NumPy array")
    x, y, x_test, y_test = data
    train, test = _part("x", x, "y", y), _part("x_test", x_test, "y_test", y_test)
    if x_test.shape[1:] != x.shape[1:]:
        raise UserError(f"data: images of x_test are of shape {x_test.shape[1:]}, those of x {x.shape[1:]}")
    request = Request(f"{ARRAYS}{_digest(*train, *test)}")
    decode_once(Source(request.name, lambda: images_decoded(train, test)), request, cache)
    return request.name


def _part(images_name: str, images: NDArray, labels_name: str, labels: NDArray) -> Part:
    told = f"data: {images_name} is {images.dtype} {images.shape}"
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or not images.size:
        raise UserError(f"{told}; expected {IMAGES}")
    if images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        raise UserError(f"{told}; expected channels first: x.transpose(0, 3, 1, 2)")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu" or labels.min(initial=0) < 0:
        raise UserError(
            f"data: {labels_name} is {labels.dtype} {labels.shape}; expected {len(images)} class numbers >= 0"
        )
    return images.reshape(len(images), -1, *images.shape[-2:]), labels.astype(np.int64)


def _digest(*arrays: NDArray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:24]
