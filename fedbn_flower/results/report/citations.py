"""What to cite: the papers that the algorithms of a run name, whose BibTeX is in ``papers.md``."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedbn_flower.strategies.aggregation.buffers import PROTOCOLS
from fedbn_flower.strategies.aggregation.named_means import MEANS

from ...config.keys import RUN_KEYS
from ...config.metric_names import NONE, metric_names
from ...config.named_algorithms import NAMED, WITH_ARGUMENT
from ...core.methods import paper_of
from ...extensions import built_in
from ...names import METRIC, parts

FLOWER = "beutel2020flower"
OF_KEYS = {"agc": "brock2021highperformance"}
"""The papers of keys that name nothing, cited where they are not 0 or false."""
DEFAULTS = {name: key.default for name, key in RUN_KEYS.items()}
LATEX = re.compile(r"\\(?:\W|\w(?=\{))|[{}]")
"""Accents and braces."""


@cache
def entries() -> Mapping[str, str]:
    """Every BibTeX entry of ``papers.md``, by its key."""
    text = Path(__file__).with_name("papers.md").read_text(encoding="utf-8")
    found = re.finditer(r"^@\w+\{(.+?),\n.*?^\}$", text, re.DOTALL | re.MULTILINE)
    return {entry[1]: entry[0] for entry in found}


def citations(configs: Iterable[Mapping[str, Any]]) -> str:
    """BibTeX of what runs of these configurations rest on: Flower, and every built-in algorithm that names a
    paper. Algorithms from files are not looked at: a report runs nobody's code."""
    keys = [FLOWER]
    with_argument = {kind: registry.names for kind, registry in WITH_ARGUMENT.items()}
    with_argument |= {"protocol": PROTOCOLS, "mean": MEANS}
    for config in configs:
        for kind, known in NAMED.items():
            names = parts(str(config.get(kind, "")), known)
            keys += [paper_of(known[name]) for name in names if name in known]
        for kind, known in with_argument.items():
            name = str(config.get(kind, "")).partition(":")[0]
            keys += [paper_of(known[name])] if name in known else []
        keys += [key for cls in built_in(config) for key in cls.about({**DEFAULTS, **config}).papers]
        keys += [key for name, key in OF_KEYS.items() if config.get(name)]
        names = metric_names(str(config.get(METRIC.key, NONE)))
        keys += [paper_of(METRIC.names[name]) for name in names if name in METRIC.names]
    bibliography = entries()
    return "\n\n".join(bibliography[key] for key in dict.fromkeys(keys) if key)


def source(key: str) -> str:
    """A paper as a table of the docs names it: its authors, its year, a link where it is on arXiv.

    Raises
    ------
    KeyError
        When ``papers.md`` has no such entry.
    """
    text, eprint = authors_and_year(key), _fields(key).get("eprint")
    return f"[{text}](https://arxiv.org/abs/{eprint})" if eprint else text


def authors_and_year(key: str) -> str:
    """A paper as a text names it: ``Li et al. 2021``, in ASCII.

    Raises
    ------
    KeyError
        When ``papers.md`` has no such entry.
    """
    fields = _fields(key)
    surnames = [LATEX.sub("", author.partition(",")[0]) for author in fields["author"].split(" and ")]
    authors = " and ".join(surnames) if len(surnames) <= 2 else f"{surnames[0]} et al."
    return f"{authors} {fields['year']}"


def _fields(key: str) -> dict[str, str]:
    if key not in (known := entries()):
        raise KeyError(f"paper {key!r} has no entry in fedbn_flower/results/report/papers.md")
    return dict(re.findall(r"^ +(\w+) += \{(.*)\},$", known[key], re.MULTILINE))
