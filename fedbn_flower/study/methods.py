"""A run or a sweep in the words of a paper: the paragraphs of its methods, and a model card."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

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
from ..results.held_out import have_same_cases, held_out_by_site
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
OWN = "a method of our own"
SEED = "The seed was "
FEW_SITES, FEW_EVENTS = 10, 100
"""G. Collins, E. Ogundimu and D. Altman: Sample size considerations for the external validation of a
multivariable prognostic model. Statistics in Medicine 35(2), 2016, for events."""
TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)


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
    facts = {"written": study.written, "run": study.runs[0], "command": shlex.join(study.command)}
    return without_folders(_filled("model_card.md", study=study, **facts) + "\n")


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
    """Return the sentences of each paragraph of ``methods.md``."""
    text = _filled("methods.md", run=run, config=run.config, summary=run.summary, **_facts(run))
    written = {}
    for part in re.sub(r"\n +", " ", text).split("\n# "):
        title, *lines = part.removeprefix("# ").splitlines()
        if sentences := [line.strip() for line in lines if line.strip()]:
            written[title] = sentences
    return written


def _filled(name: str, **facts: object) -> str:
    """Return a template's text; what it finds wrong with a folder is a ValueError, as of other readers."""
    try:
        return TEMPLATES.get_template(name).render(facts)
    except TemplateError as error:
        raise ValueError(str(error)) from error


def _facts(run: Run) -> dict[str, Any]:
    """Return what the template says of a run, beside what its files say themselves."""
    config, summary, clients, new = run.config, run.summary, run.summary.clients, _new_clients(run)
    names = _names({**clients, **new})
    sizes = [int(client["num-examples"]) for client in clients.values() if client.get("num-examples")]
    few, most = min(sizes, default=0), max(sizes, default=0)
    share = float(config.get("fraction-train", 1.0))
    but = f" but {'the one left out' if summary.left_out else f'{len(new)} held out'}" if new else ""
    examples = [note.text for note in run.learnt if note.row == "examples"]
    rows = {row: [note.text for note in run.learnt if note.row == row] for row in ("target", "inputs")}
    metrics = str(config.get("metrics", "none")).split(",")
    further = [name for name in metrics if name not in (run.main_metric, "none")]
    versions = dict(config.get("versions", {}))
    return {
        "who": f" ({joined(names)})" if run.client_names and 0 < len(names) <= MOST_NAMES else "",
        "new": _names(new),
        "of_new": _of_new(run),
        "sizes": sizes,
        "each": f"{few:,}" if few == most else f"{few:,} to {most:,}",
        "held_out": _held_out(run),
        "events": _events(run),
        "divided": [text for text in examples if not (text[0].isdigit() or text.startswith(TESTED_ON))],
        "learnt": {row: texts for row, texts in rows.items() if texts},
        "who_trains": f"all sites{but}" if share == 1 else f"a random {share:.0%} of the sites{but}",
        "by_size": config.get("weighting") == "num-examples" and config.get("mean", "weighted") in WEIGHTED,
        "further": [spelt(name) for name in further],
        "at_specificity": any(name.startswith("sensitivity-at") for name in [*further, run.main_metric]),
        "subgroups": [f"`{name}`" for name in (summary.subgroups or {}).get("by", ())],
        "python": versions.pop("python", ""),
        "versions": [f"{name} {version}" for name, version in versions.items()],
        "norm": _norm(str(config.get("norm", "keep"))),
        "method": partial(_method, run),
    }


def _norm(norm: str) -> str:
    """Return what stood in the place of BatchNorm, with its paper; empty where it stayed."""
    known = NORM.names.get(norm.partition(":")[0])
    cited = f" ({source(key)})" if known and (key := paper_of(known)) else ""
    words = first_line(known).rstrip(".").replace("``", "`") if known else OWN
    return "" if norm == "keep" else f"`{norm}`{cited}: {words}"


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


def _of_new(run: Run) -> str:
    """Return the examples of sites that did not train, with how many there are if the folder says so.

    Where all sites have the same ones, a sum over sites would count each several times.
    """
    if not run.summary.left_out and have_same_cases(run):
        return "all held-out examples"
    found = held_out_by_site(run, new=True).values()
    counts = Counter({name: sum(of.get(name, 0) for of in found) for of in found for name in of})
    whose, examples = ("all of its", "examples") if run.summary.left_out else ("their", "held-out examples")
    if not counts:
        return f"{whose} {examples}"
    events = f", {_of_them([*counts.values()][1])} (`{run.event}`)" if len(counts) == 2 else ""
    return f"{whose} {counts.total():,} {examples}{events}"


def _of_them(events: int) -> str:
    """Return how many of some examples are events."""
    return f"{events:,} of them {'an event' if events == 1 else 'events'}"


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


TEMPLATES.globals |= {
    **{"joined": joined, "number_of": number_of, "cited": _cited, "source": source, "OF_KEYS": OF_KEYS},
    **{"how_chosen": how_chosen, "not_held": not_held, "spelt": spelt, "in_words": in_words},
    **{"SEED": SEED, "NOTE": NOTE, "tripod": tripod, "claim": claim, "is_of_images": is_of_images},
    "of_them": _of_them,
}
"""What their sentences are made with."""
