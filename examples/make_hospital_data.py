"""Make the data of docs/how-to/medical.md: pictures of three scanners, and a table with a rare outcome.

    python examples/make_hospital_data.py data

Nothing in it is real. The three sites differ: ``north`` has clear pictures, those of ``south`` are dull and
noisy, those of ``east`` inverted. Written are

- ``data/lesions/SITE/images/000.png`` and ``data/lesions/SITE/masks/000.png``: where the bright ellipses are;
- ``data/findings/images/SITE-000.png`` and ``data/findings/findings.csv``: site, picture, findings as 0 or 1;
- ``data/patients.csv``: measurements, of which some are missing, and ``died``, 1 for one patient in 28.

Runs on them:

python run_sim.py --dataset data/patients.csv --label-column died --partition natural:site --num-clients 3
flwr run . --run-config "dataset='data/patients.csv' label-column='died' partition='natural:site'"
"""

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SITES = ("north", "south", "east")
SIZE = 48
FINDINGS = {"nodule": 0.4, "effusion": 0.25, "tube": 0.15}
"""How often each is there."""
ROWS, COLUMNS = np.mgrid[:SIZE, :SIZE]


def body(rng: np.random.Generator) -> NDArray[np.float64]:
    """A picture without findings, (48, 48), about 0.2 to 0.5: two dark fields, blurred noise."""
    fields = sum(np.exp(-(((COLUMNS - c) / 8) ** 2) - ((ROWS - 24) / 16) ** 2) for c in (14, 34))
    noise = rng.normal(0, 1, (6, 6))
    clouds = np.asarray(
        Image.fromarray(noise.astype(np.float32)).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    )
    return 0.45 - 0.2 * fields + 0.03 * clouds


def ellipse(rng: np.random.Generator) -> NDArray[np.bool_]:
    """A filled ellipse, anywhere but at the border, with half axes from 3 to 6 pixels."""
    (row, column), (a, b), angle = rng.uniform(8, SIZE - 8, 2), rng.uniform(3, 6, 2), rng.uniform(0, np.pi)
    x, y = COLUMNS - column, ROWS - row
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    return (along / a) ** 2 + (across / b) ** 2 <= 1


def effusion(rng: np.random.Generator) -> NDArray[np.bool_]:
    """The lower part of the left or the right half, below a slope."""
    half = COLUMNS < SIZE // 2 if rng.integers(2) else COLUMNS >= SIZE // 2
    border = rng.uniform(32, 38) - 8 * np.abs(COLUMNS - SIZE // 2) / SIZE
    return half & (border < ROWS)


def tube(rng: np.random.Generator) -> NDArray[np.bool_]:
    """A line of one or two pixels from the top to the middle."""
    column, slope, end = rng.uniform(20, 28), rng.uniform(-0.3, 0.3), rng.integers(20, 30)
    return (np.abs(COLUMNS - column - slope * ROWS) < 0.8) & (end > ROWS)


DRAWN = {"nodule": ellipse, "effusion": effusion, "tube": tube}


def scanned(picture: NDArray[np.float64], site: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A picture in [0, 1] as the site's scanner stores it, in 8 bits."""
    seen = {"north": picture, "south": 0.4 + 0.4 * picture, "east": 1 - picture}[site]
    noise = {"north": 0.03, "south": 0.04, "east": 0.03}[site]
    return np.rint(255 * np.clip(seen + rng.normal(0, noise, seen.shape), 0, 1)).astype(np.uint8)


def save(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write a grey PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_lesions(folder: Path, site: str, count: int, rng: np.random.Generator) -> None:
    """Write pictures with one to three lesions, one in ten without, and their masks of 0 and 255."""
    for number in range(count):
        picture, mask = body(rng), np.zeros((SIZE, SIZE), bool)
        for _ in range(0 if rng.random() < 0.1 else rng.integers(1, 4)):
            lesion = ellipse(rng)
            picture[lesion & ~mask] += rng.uniform(0.15, 0.3)
            mask |= lesion
        save(folder / site / "images" / f"{number:03}.png", scanned(picture, site, rng))
        save(folder / site / "masks" / f"{number:03}.png", np.where(mask, 255, 0).astype(np.uint8))


def write_findings(folder: Path, site: str, count: int, rng: np.random.Generator) -> list[list[object]]:
    """Write pictures and return their rows of the table: site, file name, a 0 or 1 for each finding."""
    rows = []
    for number in range(count):
        picture, labels = body(rng), [int(rng.random() < share) for share in FINDINGS.values()]
        for name in (name for name, there in zip(FINDINGS, labels, strict=True) if there):
            picture[DRAWN[name](rng)] += rng.uniform(0.15, 0.3)
        name = f"{site}-{number:03}.png"
        save(folder / "images" / name, scanned(picture, site, rng))
        rows.append([site, name, *labels])
    return rows


def patients(site: str, count: int, rng: np.random.Generator) -> list[list[object]]:
    """Rows of the table of patients; ``south`` has creatinine in mg/dL, and seldom measures lactate."""
    age, sex = rng.normal(62, 15, count).clip(18, 99).round(), rng.integers(0, 2, count)
    lactate, heart = rng.lognormal(0.4, 0.5, count), rng.normal(84, 16, count)
    creatinine, albumin = rng.lognormal(4.4, 0.35, count), rng.normal(38, 6, count)
    risk = 0.07 * (age - 62) + 2 * (np.log(lactate) - 0.4) + 0.03 * (heart - 84)
    risk += 1.7 * (np.log(creatinine) - 4.4) - 0.13 * (albumin - 38)
    died = rng.random(count) < 1 / (1 + np.exp(4.6 - risk))
    unit, unmeasured = (88.4, 0.4) if site == "south" else (1.0, 0.1)
    numbers = np.column_stack([age, lactate, heart, creatinine / unit, albumin]).round(2).astype(object)
    for column, share in ((1, unmeasured), (4, 0.15)):
        numbers[rng.random(count) < share, column] = ""
    return [[site, "fm"[s], *row, int(y)] for s, row, y in zip(sex, numbers, died, strict=True)]


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def main() -> None:
    """Write everything; the same files for the same numbers and seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=int, default=200, help="of each kind, at each site")
    parser.add_argument("--patients", type=int, default=1500, help="at each site")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    streams = [np.random.default_rng([chosen.seed, number]) for number in range(len(SITES))]
    findings: list[list[object]] = []
    table: list[list[object]] = []
    for site, rng in zip(SITES, streams, strict=True):
        write_lesions(chosen.folder / "lesions", site, chosen.pictures, rng)
        findings += write_findings(chosen.folder / "findings", site, chosen.pictures, rng)
        table += patients(site, chosen.patients, rng)
    write_table(chosen.folder / "findings" / "findings.csv", ["site", "picture", *FINDINGS], findings)
    header = ["site", "sex", "age", "lactate", "heart_rate", "creatinine", "albumin", "died"]
    write_table(chosen.folder / "patients.csv", header, table)


if __name__ == "__main__":
    main()
