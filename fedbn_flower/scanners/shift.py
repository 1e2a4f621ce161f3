"""Feature shift: the same images as sites with different scanners would see them, generated offline."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedbn_flower.clients import Columns
from fedbn_flower.clients.problems.segmentation import VOID

from ..core.errors import not_allowed
from ..core.free_memory import check_fits
from ..core.notes import Note
from ..data.dataset import Dataset, Decoded
from ..data.images.kind import Images, to_three_channels
from ..data.images.shift_spec import MIXED, PLAIN, SHIFTS, column_of, domains, masks_of

Pixels = NDArray[np.uint8]
"""uint8 (N, channels, height, width)."""
CHUNK = 4096  # images; bounds the memory of the float copies
ROTATED = "rotated"
ANGLE = 45.0
SIGMA = 0.2 * 255
COLOURFUL = frozenset({"coloured", "blended"})


def shift_images(dataset: Dataset, text: str) -> Decoded:
    """Return images with one column per domain, and a mixed one in which the domains alternate by row.

    Masks are rotated with their images, and otherwise the same in every domain. Random numbers are drawn
    image after image: a row's noise, colour or patch depends only on the row. The facts stay those of the
    original images.

    Raises
    ------
    UserError
        When the data are not images, or a domain in colour is asked of images with neither 1 nor 3 channels.
    """
    if not isinstance(dataset.kind, Images) or len(dataset.spec.shape) != 3:
        raise not_allowed("feature-shift", text, f"'none': only images can be shifted, not {dataset.spec}")
    if dataset.train.columns["x"].dtype != np.uint8:
        raise not_allowed("feature-shift", text, "'none': only images of 8 bits can be shifted")
    names = domains(text)
    facts, notes = dict(dataset.kind.facts), list(dataset.notes)
    train, test = dataset.train, dataset.test
    channels, colourful = dataset.spec.channels, COLOURFUL.intersection(names)
    if colourful and channels not in (1, 3):
        expected = f"no colours: the images have {channels} channels, neither 1 nor 3"
        raise not_allowed("feature-shift", "+".join(sorted(colourful)), expected)
    if colourful and channels == 1:
        why = "because some domains of feature-shift are in colour"
        notes.append(Note("inputs", f"the images are converted to three channels, {why}"))
        train, test = (
            replace(one, columns={**one.columns, "x": to_three_channels(one.columns["x"])})
            for one in (train, test)
        )
        facts |= {key: facts[key] * 3 for key in ("mean", "std")}
    train, test = (
        replace(one, columns=_with_domains(one.columns, names, split))
        for split, one in enumerate((train, test))
    )
    return Decoded("images", train, test, facts, dataset.class_names, tuple(notes))


def _with_domains(columns: Columns, names: tuple[str, ...], split: int) -> Columns:
    """Return the columns, plus one per domain and the mixed one."""
    copies = len(names) + 1
    check_fits("feature-shift", f"{copies} copies of the images", copies * columns["x"].nbytes)
    found = dict(columns)
    for name in names:
        found[column_of(name)] = _in_domain(columns["x"], name, split)
    mixed = np.empty_like(columns["x"])
    for place, name in enumerate(names):
        mixed[place :: len(names)] = found[column_of(name)][place :: len(names)]
    found[column_of(MIXED)] = mixed
    if columns["y"].ndim > 2 and ROTATED in names:
        masks = _rotated_masks(columns["y"])
        turned = np.array(names)[np.arange(len(masks)) % len(names)] == ROTATED
        found[masks_of(ROTATED)] = masks
        found[masks_of(MIXED)] = np.where(turned[:, None, None], masks, columns["y"])
    return found


def _rotated_masks(masks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rotate masks, uint8 (N, height, width), as `rotated` does images, to the nearest; corners are void."""
    import torch
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2.functional import rotate

    turned = rotate(torch.from_numpy(np.array(masks)), ANGLE, InterpolationMode.NEAREST, fill=[VOID])
    return np.asarray(turned.numpy())


def _in_domain(images: Pixels, name: str, split: int) -> Pixels:
    """Return all images as seen in a domain."""
    if name == PLAIN:
        return images
    rng = np.random.default_rng([split, SHIFTS.index(name)])
    result = np.empty_like(images)
    for start in range(0, len(images), CHUNK):
        part = slice(start, start + CHUNK)
        result[part] = FUNCTIONS[name](np.array(images[part]), rng)
    return result


# ---- each domain ------------------------------------------------------------------------------------


def inverted(images: Pixels, rng: Generator) -> Pixels:
    """Invert the intensities."""
    return 255 - images


def rotated(images: Pixels, rng: Generator) -> Pixels:
    """Rotate by 45 degrees counter-clockwise, bilinear; corners become black."""
    import torch
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2.functional import rotate

    turned: Pixels = rotate(torch.from_numpy(images), ANGLE, InterpolationMode.BILINEAR).numpy()
    return turned


def noisy(images: Pixels, rng: Generator) -> Pixels:
    """Add Gaussian noise with a standard deviation of a fifth of the range."""
    noise = SIGMA * rng.standard_normal(images.shape, np.float32)
    return np.clip(np.rint(images + noise), 0, 255).astype(np.uint8)


def coloured(images: Pixels, rng: Generator) -> Pixels:
    """Tint each image with one random colour, whose largest channel is 1."""
    colours = rng.random((len(images), 3), np.float32)
    colours /= colours.max(1, keepdims=True)
    tinted: Pixels = np.rint(images * colours[:, :, None, None]).astype(np.uint8)
    return tinted


def blended(images: Pixels, rng: Generator) -> Pixels:
    """Return ``|patch - image|`` with a random patch of a photo, as in MNIST-M (Ganin et al. 2016).

    The photos are the two of scikit-learn, tiled where they are too small.
    """
    patches = np.empty_like(images)
    for patch in patches:
        photo = _photos()[rng.integers(2)]
        rows, columns = (
            (rng.integers(full) + np.arange(part)) % full
            for full, part in zip(photo.shape[1:], patch.shape[1:], strict=True)
        )
        patch[:] = photo[:, rows[:, None], columns]
    return np.maximum(patches, images) - np.minimum(patches, images)


@lru_cache(maxsize=1)
def _photos() -> list[Pixels]:
    from sklearn.datasets import load_sample_images

    return [photo.transpose(2, 0, 1) for photo in load_sample_images().images]


FUNCTIONS: dict[str, Callable[[Pixels, Generator], Pixels]] = dict(
    zip(SHIFTS, (inverted, rotated, noisy, coloured, blended), strict=True)
)
