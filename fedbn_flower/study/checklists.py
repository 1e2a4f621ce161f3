"""TRIPOD+AI and, of images and volumes, CLAIM: which items a model card says something of."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from ..core.input_spec import InputSpec
from ..core.notes import GROUPED
from ..core.text import number_of
from ..results.report.tables import Table
from ..results.run_reader import Run

IMBALANCE = ("class-balanced", "logit-adjusted", "calc", "weighted-bce")
"""Losses that treat rare classes in another way."""
IMAGE_AXES = 3
"""Channels, height and width, at least."""
MISSING = "missing"
ITEMS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("checklists.toml").read_text())
TRIPOD, CLAIM = ITEMS["TRIPOD"], ITEMS["CLAIM"]
"""Each item with the paragraph of the methods that says something of it, whatever the run; see `_of_run`."""
IN_CARD = {"Training": "Model", "Aggregation": "Model", "Evaluation": "Metrics"}
"""The section of the card that a paragraph is in, where it has another name."""


def is_of_images(run: Run) -> bool:
    """Return whether a run's inputs are images or volumes."""
    spec = InputSpec.parse(str(run.config.get("shape", "")))
    return spec is not None and len(spec.shape) >= IMAGE_AXES


def place(paragraph: str, written: Mapping[str, str]) -> str:
    """Return which section of the card has a paragraph, or that it is missing."""
    return f"{IN_CARD.get(paragraph, paragraph)}, above" if paragraph in written else MISSING


def tripod(run: Run, written: Mapping[str, str]) -> Table:
    """Return the items of TRIPOD+AI, as `claim` does those of CLAIM."""
    told = {
        "11 Missing data": "Model" if says_of_missing(run) else "",
        "13 Class imbalance": "Training" if run.config.get("loss") in IMBALANCE else "",
        "24 Model updating": "Evaluation" if run.summary.recalibrated else "",
    }
    return _table({item: place(at, written) for item, at in {**TRIPOD, **told}.items()})


def claim(run: Run, written: Mapping[str, str]) -> Table:
    """Return the items of CLAIM, each with where the card says something of it, or that it is missing.

    ``written`` are the card's paragraphs by title. Of what the run knows it says at least that; authors have
    more to say.
    """
    found = {item: place(at, written) for item, at in CLAIM.items()}
    numbers = {item.partition(" ")[0]: item for item in CLAIM}
    found |= {numbers[number]: text for number, text in _of_run(run).items() if text}
    return _table(found)


def _table(found: Mapping[str, str]) -> Table:
    return Table(["item", "where"], [[item, text] for item, text in found.items()], words=2)


def says_of_missing(run: Run) -> bool:
    """Return whether a run says what it did with missing values."""
    return any("missing values" in note.text for note in run.learnt)


def _of_run(run: Run) -> dict[str, str]:
    """Return what this run says of items, by number; empty where it says nothing."""
    config, summary = run.config, run.summary
    init = config.get("init")
    uncertain = "Metrics, above: 95 % intervals" if summary.intervals else ""
    new = len(summary.new_clients.clients) if summary.new_clients else 0
    return {
        "12": "Model, above" if says_of_missing(run) else "",
        "20": next((note.text for note in run.learnt if note.text.startswith(GROUPED)), ""),
        "24": f"from the weights of `{init}`" if init else f"at random, seed {config.get('seed')}",
        "26": f"round {summary.best_round}, the best by validation"
        if summary.best_round
        else f"the last round, {summary.rounds}",
        "27": "none: one model, or one for each site",
        "29": uncertain,
        "33": f"{number_of(new, 'site')} that did not train" if new else "",
        "37": uncertain,
        "38": uncertain,
        "39": "the report's best, median and worst cases of each site" if summary.by_case else "",
    }
