"""Images of a bright disc on a dark ground, and of a dark one on a bright ground: of two scanners."""

import numpy as np
from PIL import Image

SITES = ("lyon", "turin")


def circles(site, count=12, size=16):
    """A site's images and masks of 0 and 1, uint8 (count, size, size)."""
    rng = np.random.default_rng(site)
    rows, columns = np.mgrid[:size, :size]
    centres = rng.uniform(size / 4, 3 * size / 4, (2, count, 1, 1))
    radii = rng.uniform(size / 8, size / 4, (count, 1, 1))
    masks = (rows - centres[0]) ** 2 + (columns - centres[1]) ** 2 < radii**2
    light = np.where(masks, 170, 90) + rng.normal(0, 10, masks.shape)
    images = 60 + (255 - light) / 2 if site else light
    return images.clip(0, 255).astype(np.uint8), masks.astype(np.uint8)


def write_circles(folder, splits=("",), **options):
    """``lyon/images/0.png``, ``lyon/masks/0.png``, ... with masks of 0 and 255, perhaps below splits."""
    for split in splits:
        for number, site in enumerate(SITES):
            for kind, arrays in zip(("images", "masks"), circles(number, **options), strict=True):
                place = folder / split / site / kind
                place.mkdir(parents=True)
                for i, array in enumerate(arrays):
                    Image.fromarray(array * (255 if kind == "masks" else 1)).save(place / f"{i:02}.png")
    return folder
