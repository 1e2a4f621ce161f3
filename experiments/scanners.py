"""Write the images and masks of segmentation.toml: discs, as two scanners show them.

    python experiments/scanners.py runs/data/scanners

Each site has 60 images of 32x32 pixels, in ``SITE/images`` and ``SITE/masks``. ``lyon``'s scanner shows a
disc brighter than what is around it, ``turin``'s darker and with half the contrast. A run holds out a fifth
of each site's images.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SITES = ("lyon", "turin")
COUNT, SIDE = 60, 32
GROUND, DISC, NOISE = 90, 160, 15

Pixels = NDArray[np.uint8]


def examples(site: int) -> tuple[Pixels, Pixels]:
    """Return a site's images and masks of 0 and 255, each uint8 (count, side, side)."""
    rng = np.random.default_rng(site)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    centres = rng.uniform(SIDE / 4, 3 * SIDE / 4, (2, COUNT, 1, 1))
    radii = rng.uniform(SIDE / 8, SIDE / 4, (COUNT, 1, 1))
    disc = (rows - centres[0]) ** 2 + (columns - centres[1]) ** 2 < radii**2
    light = np.where(disc, DISC, GROUND) + rng.normal(0, NOISE, disc.shape)
    seen = 60 + (255 - light) / 2 if site else light
    return seen.clip(0, 255).astype(np.uint8), (255 * disc).astype(np.uint8)


def main(folder: Path) -> None:
    """Write all sites to a folder."""
    for number, site in enumerate(SITES):
        for kind, arrays in zip(("images", "masks"), examples(number), strict=True):
            place = folder / site / kind
            place.mkdir(parents=True, exist_ok=True)
            for i, array in enumerate(arrays):
                Image.fromarray(array).save(place / f"{i:02}.png")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python experiments/scanners.py FOLDER")
    main(Path(sys.argv[1]))
