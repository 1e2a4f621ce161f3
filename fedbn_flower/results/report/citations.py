"""What to cite: the papers of the built-in algorithms, which are in ``papers.md``."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...config.client_unions import parts

FLOWER = "beutel2020flower"
PAPERS: Mapping[str, str] = {
    "fedavg": "mcmahan2017fedavg",
    "fedavgm": "hsu2019measuring",
    "fednova": "wang2020fednova",
    "fedadagrad": "reddi2021adaptive",
    "fedyogi": "reddi2021adaptive",
    "fedadam": "reddi2021adaptive",
    "feddyn": "acar2021feddyn",
    "scaffold": "karimireddy2020scaffold",
    "scaffold-momentum": "li2022niidbench",
    "fedproto": "tan2022fedproto",
    "fedsat": "chowdhury2024fedsat",
    "calc": "chowdhury2024fedsat",
    "silobn": "andreux2020siloed",
    "fedbn": "li2021fedbn",
    "fedper": "arivazhagan2019fedper",
    "fedrep": "collins2021fedrep",
    "ditto": "li2021ditto",
    "fedprox": "li2020fedprox",
    "moon": "li2021moon",
    "fedrs": "li2021fedrs",
    "fedsam": "qu2022fedsam",
    "fedntd": "lee2022fedntd",
    "class-balanced": "cui2019classbalanced",
    "focal": "lin2017focal",
    "label-smoothing": "szegedy2016rethinking",
    "logit-adjusted": "menon2021logit",
    "median": "yin2018byzantine",
    "trimmed": "yin2018byzantine",
}
"""The key of its paper by the name of an algorithm, or of a robust mean. `sgd`, `alone` and algorithms of
one's own have none."""

KINDS = ("strategy", "client", "objective", "loss", "mean")


def entries() -> dict[str, str]:
    """Every BibTeX entry of ``papers.md``, by its key."""
    text = Path(__file__).with_name("papers.md").read_text(encoding="utf-8")
    found = re.finditer(r"^@\w+\{(.+?),\n.*?^\}$", text, re.DOTALL | re.MULTILINE)
    return {entry[1]: entry[0] for entry in found}


def citations(configs: Iterable[Mapping[str, Any]]) -> str:
    """BibTeX of what runs of these configurations rest on: Flower, and each algorithm that has a paper."""
    names = (name for c in configs for kind in KINDS for name in parts(str(c.get(kind, ""))))
    keys = dict.fromkeys([FLOWER, *(PAPERS[name] for name in names if name in PAPERS)])
    bibliography = entries()
    return "\n\n".join(bibliography[key] for key in keys)
