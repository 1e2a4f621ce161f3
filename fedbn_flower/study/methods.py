"""A run or a sweep in the words of a paper: the paragraphs of its methods, and a model card."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedbn_flower.strategies.aggregation.named_means import WEIGHTED

from ..config.help import as_text, first_line
from ..config.named_algorithms import NAMED, REGISTRIES, settings_of
from ..core.methods import paper_of
from ..core.notes import GROUPED, TESTED_ON
from ..core.stored import EXPERIMENT
from ..core.text import joined, number_of
from ..models.named import NORM
from ..names import parts
from ..privacy.in_words import not_held
from ..records.metrics import spelt
from ..records.summary import OfClient
from ..results.report.citations import OF_KEYS, citations, source
from ..results.report.html import without_folders
from ..results.report.results_table import results_table
from ..results.report.run_page import title_of
from ..results.report.runs_by_seed import Group, Sweep
from ..results.report.sections.closing import command_of
from ..results.report.sections.results import how_chosen
from ..results.report.tables import Table
from ..results.report.unfinished import still_rising
from ..results.run_reader import Run
from .checklists import claim, is_of_images, tripod
from .subgroups import NOTE, in_words

MOST_NAMES = 12
TO_WRITE = "**To be written by the authors.**"
OWN = "a method of our own"
SEED = "The seed was "
FEW_SITES, FEW_EVENTS = 10, 100
"""G. Collins, E. Ogundimu and D. Altman: Sample size considerations for the external validation of a
multivariable prognostic model. Statistics in Medicine 35(2), 2016, for events."""
NOT_SHOWN = "What is not shown"


class Study(NamedTuple):
    """What a paper says of a run, or of all runs of a sweep."""

    title: str
    written: dict[str, str]
    """The paragraphs by title."""
    runs: Sequence[Run]
    results: Table
    not_shown: list[str]
    command: list[str]

    @classmethod
    def of(cls, found: Run | Sweep) -> Study:
        """Return what is said of the run or the sweep in a folder."""
        if isinstance(found, Run):
            command = command_of(found.config)
            return cls(
                title_of(found), paragraphs(found), [found], results_table(found), _not_shown(found), command
            )
        table = results_table(found)
        groups = [group for group in found.groups if group.runs]
        written = {"Comparison": _comparison(found, groups, table), **_together(groups)}
        command = ["fedbn-sim", "--experiment", str(found.folder / EXPERIMENT)]
        first = groups[0].runs[0]
        titles = {title_of(run) for run in found.runs}
        title = titles.pop() if len(titles) == 1 else f"{', '.join(groups[0].names)} on {first.dataset}"
        not_shown = _not_shown(first, len(found.runs) // len(groups))
        return cls(title, written, found.runs, table, not_shown, command)


def methods(found: Run | Sweep) -> str:
    """Return what was done, in Markdown: a paragraph for each step, in the passive voice of papers.

    It says what the folder knows. What that cannot know, such as where patients come from, is for the
    authors. Of a sweep it says once what all runs share.
    """
    study = Study.of(found)
    body = "\n\n".join(f"**{title}.** {text}" for title, text in study.written.items())
    cited = citations([run.config for run in study.runs])
    return without_folders(f"# Methods\n\n{body}\n\n## To cite\n\n```bibtex\n{cited}\n```\n")


def model_card(found: Run | Sweep) -> str:
    """Return a model card (Mitchell et al. 2019), in Markdown, and which items are missing.

    They are those of TRIPOD+AI, and for images those of CLAIM.
    """
    study = Study.of(found)
    written, run = study.written, study.runs[0]
    parts_of_card = {
        "Model": f"{written['Model']} {written['Training']} {written['Aggregation']}",
        "Intended use": f"{TO_WRITE} Who is to use it, on whom, and for what it is not meant.",
        "Data": written["Data"],
        "Metrics": " ".join(filter(None, [written.get("Comparison"), written["Evaluation"]]))
        + f"\n\n{study.results.markdown().rstrip()}",
        "Fairness": written.get("Fairness", "No subgroups were compared."),
        NOT_SHOWN: "\n".join(f"- {line}" for line in study.not_shown),
        "Privacy": written.get("Privacy", "The run has no differential privacy."),
        "Software": f"{written['Software']}\n\n```text\n{shlex.join(study.command)}\n```",
        "TRIPOD+AI": "The items of Collins et al. 2024, and where this card says something of them.\n\n"
        + tripod(run, written).markdown().rstrip(),
    }
    if is_of_images(run):
        parts_of_card["CLAIM"] = (
            "The items of Tejani et al. 2024, for medical images, by their numbers and in words of ours, and "
            "where this card says something of them."
            f"\n\n{claim(run, written).markdown().rstrip()}"
        )
    sections = "\n\n".join(f"## {title}\n\n{text}" for title, text in parts_of_card.items())
    return without_folders(f"# Model card: {study.title}\n\n{sections}\n")


def _comparison(sweep: Sweep, groups: Sequence[Group], table: Table) -> str:
    """Return which methods were compared, and how they differ."""
    keys = joined([f"`{key}`" for key in groups[0].names])
    shared = joined([f"{key} `{value}`" for key, value in sweep.common.items() if value])
    labels = joined([f"`{group.label}`" for group in groups])
    same = f", all with {shared}" if shared else ""
    seeds = list(dict.fromkeys(str(run.config.get("seed")) for run in sweep.runs))
    each = f"the seeds {joined(seeds)}" if len(seeds) > 1 else f"the seed {seeds[0]}"
    words = [f"{len(groups)} configurations that differ in {keys} were compared{same}: {labels}."]
    return " ".join([*words, f"Each was trained with {each}.", table.note]).rstrip()


def _together(groups: Sequence[Group]) -> dict[str, str]:
    """Return the paragraphs of several methods: what all share, then what is said of some of them."""
    told = {group.label: _sentences(group.runs[0]) for group in groups}
    written = {}
    for title in dict.fromkeys(title for found in told.values() for title in found):
        of_each = {label: found.get(title, []) for label, found in told.items()}
        shared = [one for one in next(iter(of_each.values())) if all(one in of for of in of_each.values())]
        further: dict[str, list[str]] = {}
        for label, sentences in of_each.items():
            if text := " ".join(one for one in sentences if one not in shared and not one.startswith(SEED)):
                further.setdefault(text, []).append(f"`{label}`")
        parts = [f"With {joined(labels)}: {text[:1].lower()}{text[1:]}" for text, labels in further.items()]
        written[title] = " ".join([*(one for one in shared if not one.startswith(SEED)), *parts])
    return {title: text for title, text in written.items() if text}


def paragraphs(run: Run) -> dict[str, str]:
    """Return the paragraphs of the methods by title; those that do not apply are left out."""
    return {title: " ".join(sentences) for title, sentences in _sentences(run).items()}


def _sentences(run: Run) -> dict[str, list[str]]:
    made = {
        "Data": _data(run),
        "Model": _model(run),
        "Training": _training(run),
        "Aggregation": _aggregation(run),
        "Privacy": _privacy(run),
        "Evaluation": _evaluation(run),
        "Fairness": _fairness(run),
        "Software": _software(run),
    }
    return {title: found for title, sentences in made.items() if (found := list(sentences))}


def _data(run: Run) -> Iterator[str]:
    config, clients, new = run.config, run.summary.clients, _new_clients(run)
    names = _names({**clients, **new})
    who = f" ({joined(names)})" if run.client_names and 0 < len(names) <= MOST_NAMES else ""
    yield f"Data of {number_of(int(config.get('num-clients', 0)), 'site')}{who} were used: {run.dataset}."
    if new:
        yield f"The data of {joined(_names(new))} were not trained on."
    sizes = [int(client["num-examples"]) for client in clients.values() if client.get("num-examples")]
    if sizes:
        each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        those = "The other sites" if new else "They"
        yield f"{those} had {sum(sizes):,} examples for training ({each} a site)."
    if held_out := _held_out(run):
        events = _events(run)
        of_two = "" if events is None else f", {events[1]:,} of them events (`{events[0]}`)"
        yield f"{held_out:,} {'of their ' if new else ''}examples were held out for evaluation{of_two}."
    for note in run.learnt:
        elsewhere = note.text[0].isdigit() or note.text.startswith(TESTED_ON)
        if note.row == "examples" and not elsewhere:
            yield f"{note.text[:1].upper()}{note.text[1:]}."
    yield f"The examples were divided among the sites by `{config.get('partition')}`."
    if share := config.get("val-fraction"):
        yield f"Of the training examples {float(share):.0%} were kept for validation."


def _model(run: Run) -> Iterator[str]:
    model = str(run.config.get("model"))
    yield f"The network was `{model}`{_cited('model', model)}."
    if (norm := str(run.config.get("norm", "keep"))) != "keep":
        known = NORM.names.get(norm.partition(":")[0])
        cited = f" ({source(key)})" if known and (key := paper_of(known)) else ""
        words = first_line(known).rstrip(".").replace("``", "`") if known else OWN
        yield f"In the place of its BatchNorm layers stood `{norm}`{cited}: {words}."
    if (momentum := run.config.get("bn-momentum", "auto")) != "auto":
        yield f"The running statistics of BatchNorm had the momentum {momentum}."
    for row in ("target", "inputs"):
        if texts := [note.text for note in run.learnt if note.row == row]:
            yield f"{row.capitalize()}: {'; '.join(texts)}."


def _training(run: Run) -> Iterator[str]:
    config, summary = run.config, run.summary
    share = float(config.get("fraction-train", 1.0))
    new = _new_clients(run)
    but = f" but {'the one left out' if summary.left_out else f'{len(new)} held out'}" if new else ""
    who = f"all sites{but}" if share == 1 else f"a random {share:.0%} of the sites{but}"
    epochs = number_of(int(config.get("local-epochs", 1)), "epoch")
    yield (
        f"In each of {number_of(summary.rounds, 'round')} {who} trained the model on their own examples for "
        f"{epochs}."
    )
    size = f"batches of {config.get('batch-size')}" if config.get("batch-size") else "all examples in a batch"
    yield (
        f"They used `{config.get('client-optimizer', 'sgd')}`, {size}, rate {config.get('client-lr')}, "
        f"momentum {config.get('client-momentum')} and weight decay {config.get('weight-decay')}."
    )
    if loss := str(config.get("loss", "")):
        standard = loss == "auto"
        yield f"The loss was {'the standard one of the problem' if standard else _method(run, 'loss')}."
    if bound := run.config.get("agc"):
        yield f"Gradients were clipped adaptively, at {bound} ({source(OF_KEYS['agc'])})."
    yield f"The local objective was {_method(run, 'objective')}."
    if summary.stopped and summary.rounds != config.get("rounds"):
        yield f"Training ended early ({summary.stopped})."
    if chosen := how_chosen(run):
        yield chosen
    yield f"{SEED}{config.get('seed')}."


def _aggregation(run: Run) -> Iterator[str]:
    weighting, mean = run.config.get("weighting"), run.config.get("mean", "weighted")
    by_size = weighting == "num-examples" and mean in WEIGHTED  # other means weight all alike
    by = "weighted by numbers of examples" if by_size else "all with the same weight"
    yield (
        f"From the sites' answers, {by}, the server updated the shared entries of the model by "
        f"{_method(run, 'strategy')}."
    )
    yield f"What stayed at each site followed {_method(run, 'client')}."


def _privacy(run: Run) -> Iterator[str]:
    if found := run.summary.privacy:
        yield (
            f"Training was differentially private (notion: {found.get('notion')}; neighbours: "
            f"{found.get('adjacency')}): epsilon {found.get('epsilon'):.3g} at delta {found.get('delta'):g}."
        )
        if said := not_held(found):
            yield said


def _evaluation(run: Run) -> Iterator[str]:
    config = run.config
    trained = config.get("eval-model") == "local"
    which = "the model that it had just trained" if trained else "the new model with its own entries"
    whose = "its own" if config.get("eval-data") == "local" else "all"
    new = _new_clients(run)
    yield f"Each site{' that trained' if new else ''} evaluated {which} on {whose} held-out examples."
    if run.summary.left_out:
        yield "The site left out evaluated the final model on all of its examples."
    elif new:
        yield "The others evaluated the final model on their held-out examples."
    if config.get("adapt-bn"):
        yield (
            "Before, it estimated the BatchNorm statistics on its own training inputs, without labels "
            f"({source(OF_KEYS['adapt-bn'])})."
        )
    yield f"The main metric was {spelt(run.main_metric)}."
    further = [name for name in str(config.get("metrics", "none")).split(",") if name != run.main_metric]
    if further and further != ["none"]:
        yield f"Further metrics were {joined([spelt(name) for name in further])}."
    if any(name.startswith("sensitivity-at") for name in [*further, run.main_metric]):
        yield "For a sensitivity at a specificity, the threshold was chosen on the same cases."
    if run.summary.cross_fitted:
        yield (
            "The round was chosen on the held-out cases, so its own metrics are too good. The cross-fitted "
            "ones are of both halves of each site's cases, each in the round that the other half chose."
        )
    if found := run.summary.recalibrated:
        yield (
            f"Each site also recalibrated its scores ({found.method}), fitted on its validation share and "
            "applied to its held-out cases."
        )
    if run.summary.intervals:
        units = f"groups (`{column}`)" if (column := config.get("group-column")) else "cases"
        yield (
            "Intervals are of 95 %: exact for shares of single cases; Wilson's score interval of an "
            "effective number of cases for shares by group and, with DeLong's variance, for AUROCs of two "
            f"classes; otherwise by a bootstrap over {units} within sites. They do not "
            "cover how training varies over seeds."
        )


def _fairness(run: Run) -> Iterator[str]:
    found = run.summary.subgroups
    if not found or not found["by"]:
        return
    attributes = joined([f"`{attribute}`" for attribute in found["by"]])
    yield f"Metrics were computed for subgroups of the held-out cases, by {attributes}."
    yield from in_words(found)
    if note := found.get(NOTE):
        yield note


def _software(run: Run) -> Iterator[str]:
    versions = dict(run.config.get("versions", {}))
    python = versions.pop("python", "")
    if versions:
        names = joined([f"{name} {version}" for name, version in versions.items()])
        yield f"The software was {names}, on Python {python}."
    precision, device = run.config.get("precision", "fp32"), run.config.get("device", "cpu")
    yield f"Computations were done in {precision} on {device}."


def _method(run: Run, kind: str) -> str:
    """Return an algorithm with its paper and its settings; code of a file is not loaded."""
    described = []
    for name in parts(str(run.config.get(kind)), NAMED[kind]):
        cls: Any = NAMED[kind].get(name)
        if cls is None:
            described.append(f"`{name}`, {OWN}")
            continue
        given = ", ".join(f"{key} {as_text(value)}" for key, value in _that_matter(run, kind, cls).items())
        words = first_line(cls).rstrip(".").replace("``", "`")
        described.append(f"`{name}`{_cited(kind, name)}: {words}{f' ({given})' if given else ''}")
    return "; and ".join(described)


def _that_matter(run: Run, kind: str, cls: type) -> dict[str, Any]:
    """Return an algorithm's settings in the run: its own, and those of its base that are not the default."""
    base = next(registry.base for registry in REGISTRIES if registry.key == kind)
    of_all = settings_of(base) if base else {}
    found = {key: run.config.get(key) for key in settings_of(cls)}
    return {
        key: value
        for key, value in found.items()
        if value not in (None, "", "auto") and (key not in of_all or value != of_all[key].default)
    }


def _cited(kind: str, name: str) -> str:
    known = NAMED[kind].get(name)
    key = paper_of(known) if known is not None else ""
    return f" ({source(key)})" if key else ""


def _names(clients: Mapping[str, OfClient]) -> list[str]:
    """Return the names of clients, or else their numbers, in the order of these."""
    return [str(clients[number].get("name", number)) for number in sorted(clients, key=int)]


def _new_clients(run: Run) -> Mapping[str, OfClient]:
    """Return the sites that did not train."""
    return run.summary.new_clients.clients if run.summary.new_clients else {}


def _held_out(run: Run) -> int:
    counts = run.summary.per_class or run.summary.global_per_class
    return sum(counts.examples) if counts else 0


def _events(run: Run) -> tuple[str, int] | None:
    """Return the event of two classes, and how many held-out examples are of it; None of others."""
    counts = run.summary.per_class or run.summary.global_per_class
    if counts is None or len(counts.examples) != 2:
        return None
    return run.event, dict(zip(counts.names, counts.examples, strict=True)).get(run.outcomes[1], 0)


def _not_shown(run: Run, seeds: int = 1) -> list[str]:
    """Return what cannot be concluded from this run, or from as many with other seeds."""
    found = ["One run says nothing of how results vary over seeds; a sweep over `--seed` does."]
    found = found if seeds == 1 else []
    found += filter(None, [still_rising(run)])
    sites = len(run.summary.clients)
    if 0 < sites < FEW_SITES:
        found.append(f"{number_of(sites, 'site')} cannot show how results vary over sites.")
    if (events := _events(run)) and events[1] < FEW_EVENTS:
        found.append(
            f"{number_of(events[1], 'event')} (`{events[0]}`) held out are few: Collins et al. 2016 advise "
            f"{FEW_EVENTS} or more for a validation."
        )
    if not run.config.get("folds"):
        found.append("One split says nothing of how results vary over splits (`--folds`).")
    if not run.summary.new_clients:
        found.append("All sites have trained: nothing is known of new ones (`--leave-one-site-out`).")
    if not (run.config.get("group-column") or any(note.text.startswith(GROUPED) for note in run.learnt)):
        found.append(
            "Which examples belong together, such as those of a patient, is not known (`--group-column`)."
        )
    return found
