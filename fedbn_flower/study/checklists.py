"""TRIPOD+AI and, of images and volumes, CLAIM: which items a model card says something of.

G. Collins et al.: TRIPOD+AI statement: updated guidance for reporting clinical prediction models that use
regression or machine learning methods. BMJ 385, 2024, doi:10.1136/bmj-2023-078378.

A. Tejani et al.: Checklist for Artificial Intelligence in Medical Imaging (CLAIM): 2024 Update. Radiology:
Artificial Intelligence 6(4), 2024, doi:10.1148/ryai.240300. Its numbers and subjects are those of
https://rsna.github.io/claim, in words of our own.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.input_spec import InputSpec
from ..core.notes import GROUPED
from ..core.text import number_of
from ..results.report.tables import Table
from ..results.run_reader import Run

IMBALANCE = ("class-balanced", "logit-adjusted", "calc", "weighted-bce")
"""Losses that treat rare classes in another way."""
TRIPOD: Mapping[str, str] = {
    "1 Title": "",
    "2 Abstract": "",
    "3 Background": "",
    "4 Objectives": "",
    "5 Source of data": "Data",
    "6 Participants": "Data",
    "7 Data preparation": "Data",
    "8 Outcome": "Model",
    "9 Predictors": "Model",
    "10 Sample size": "Data",
    "11 Missing data": "",
    "12 Analytical methods": "Training",
    "13 Class imbalance": "",
    "14 Fairness": "Fairness",
    "15 Model output": "Model",
    "16 Training versus evaluation": "Evaluation",
    "17 Ethical approval": "",
    "18 Open science": "Software",
    "19 Patient and public involvement": "",
    "20 Participants of the study": "Data",
    "21 Model development": "Training",
    "22 Model specification": "Aggregation",
    "23 Model performance": "Evaluation",
    "24 Model updating": "",
    "25 Interpretation": "",
    "26 Limitations": "",
    "27 Usability": "",
}
"""The items of TRIPOD+AI, each with the paragraph of the methods that says something of it."""
IMAGE_AXES = 3
"""Channels, height and width, at least."""
MISSING = "missing"
CLAIM: Mapping[str, str] = {
    "1 Title or abstract: AI methodology, its category": "",
    "2 Abstract: design, methods, results, conclusions": "",
    "3 Background, intended use and role": "",
    "4 Aims, objectives, hypotheses": "",
    "5 Prospective or retrospective": "",
    "6 Study goal": "",
    "7 Data sources": "Data",
    "8 Inclusion and exclusion criteria": "",
    "9 Data pre-processing": "Model",
    "10 Selection of data subsets": "",
    "11 De-identification": "",
    "12 Missing data": "",
    "13 Image acquisition protocol": "",
    "14 Reference standard: method": "",
    "15 Reference standard: rationale": "",
    "16 Reference standard: source of annotations": "",
    "17 Annotation of the test set": "",
    "18 Variability within and between raters": "",
    "19 Assignment of data to partitions": "Data",
    "20 Level at which partitions are disjoint": "",
    "21 Intended sample size": "",
    "22 Detailed description of the model": "Model",
    "23 Software": "Software",
    "24 Initialisation of parameters": "",
    "25 Details of training": "Training",
    "26 Selection of the final model": "",
    "27 Ensembling": "",
    "28 Metrics of performance": "Evaluation",
    "29 Significance and uncertainty": "",
    "30 Robustness or sensitivity analysis": "",
    "31 Explainability or interpretability": "",
    "32 Evaluation on internal data": "Evaluation",
    "33 Testing on external data": "",
    "34 Clinical trial registration": "",
    "35 Numbers included and excluded": "",
    "36 Demographic and clinical characteristics by partition": "",
    "37 Performance and its uncertainty": "",
    "38 Diagnostic performance and its precision": "",
    "39 Failure analysis": "",
    "40 Limitations": "",
    "41 Implications for practice": "",
    "42 Full protocol or further technical details": "",
    "43 Availability of software, model and data": "Software",
    "44 Funding and the role of funders": "",
}
"""Each with the paragraph of the card that says something of it, whatever the run; see `_of_run`."""
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
