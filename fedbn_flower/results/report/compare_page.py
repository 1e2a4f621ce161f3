"""Runs side by side: what differs in their configurations, their figures, their curves."""

from collections.abc import Sequence
from pathlib import Path

from ...config.help import as_text
from ...core.errors import not_allowed
from ..manifest import NOT_KEYS
from ..run_reader import Run
from .groups import FOLDER, Group, Sweep, common_figure, figures_table, legend
from .html import page, paragraph, section
from .run_page import MEANS, closing, size
from .sweep_page import curves
from .tables import Table

ALIKE = {*NOT_KEYS, "run-dir", "resume", "cache-dir", "verbose", "seed"}
"""Keys in which runs differ that are the same work, and other facts than keys."""


def groups_of(folders: Sequence[Path]) -> list[Group]:
    """The runs of these folders, each a group of its own; of a sweep its cells.

    Raises
    ------
    UserError
        When one is no folder of a run, a sweep or a search.
    """
    found = []
    for folder in folders:
        name = _names(folders)[folder]
        if (folder / "grid.csv").exists():
            found += [Group({FOLDER: name, **g.names}, g.runs) for g in Sweep.read(folder).groups if g.runs]
        elif (folder / "best" / "config.json").exists():
            found.append(Group({FOLDER: name}, [Run.read(folder / "best")]))
        elif (folder / "config.json").exists():
            found.append(Group({FOLDER: name}, [Run.read(folder, "compare")]))
        else:
            raise not_allowed("compare", str(folder), "the folder of a run, a sweep or a search")
    return found


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """What each folder is called: its last name where no other has it."""
    names = [folder.resolve().name for folder in folders]
    return {f: n if names.count(n) == 1 else str(f) for f, n in zip(folders, names, strict=True)}


def differences(groups: Sequence[Group]) -> Table:
    """The keys in which the groups' configurations differ, down, and the groups across; with the versions and
    the data, where these do."""
    facts = [_facts(group.runs[0]) for group in groups]
    keys = [k for k in dict.fromkeys(k for f in facts for k in f) if len({f.get(k, "") for f in facts}) > 1]
    header = ["key", *(group.label for group in groups)]
    return Table(header, [[key, *(f.get(key, "") for f in facts)] for key in keys], words=len(header))


def _facts(run: Run) -> dict[str, str]:
    told = {key: _text(value) for key, value in run.config.items() if key not in ALIKE}
    told |= {f"version of {k}": str(v) for k, v in (run.config.get("versions") or {}).items()}
    return told | {"data (digest)": str(run.config.get("data", ""))[:12]}


def _text(value: object) -> str:
    """A value in words, the same for 1 and 1.0."""
    return as_text(value).removesuffix(".0") if isinstance(value, float) else as_text(value)


def of_different_data(groups: Sequence[Group]) -> str:
    """A sentence where the groups' runs are not of the same examples; empty where they are. Data that are
    drawn may be others for another seed."""
    runs = [run.config for group in groups for run in group.runs]
    by_seed: dict[object, set[object]] = {}
    for config in runs:
        by_seed.setdefault(config.get("seed"), set()).update({config.get("data")} - {None})
    datasets = {config.get("dataset") for config in runs}
    digests = {config.get("data") or config.get("dataset") for config in runs}
    alike = all(len(found) < 2 for found in by_seed.values())
    if alike and (len(digests) == 1 or len(datasets) == 1):
        return ""
    names = list(dict.fromkeys(run.dataset for group in groups for run in group.runs))
    told = ", ".join(names) if len(names) > 1 else f"{names[0]} with different examples"
    return f"The runs are of different data ({told}): their figures do not tell which is better."


def costs(groups: Sequence[Group]) -> Table:
    """What a run of each group took: the mean over its runs, where they told."""
    rows = []
    for group in groups:
        told = [run.summary for run in group.runs if run.summary]
        row = [group.label]
        for key in ("rounds", "seconds", "seconds-per-round", "failures", "bytes-sent", "bytes-received"):
            values = [summary[key] for summary in told if summary.get(key) is not None]
            middle = sum(values) / len(values) if values else None
            text = "" if middle is None else size(middle) if key.startswith("bytes") else f"{middle:.4g}"
            row.append(text)
        rows.append(row)
    header = ["", "rounds", "seconds", "seconds a round", "failures", "sent", "received"]
    return Table(header, rows)


def compare_page(groups: Sequence[Group]) -> str:
    """The whole page."""
    by = common_figure(groups)
    table = figures_table(groups, by)
    differing = differences(groups)
    warned = [paragraph(told, "note")] if (told := of_different_data(groups)) else []
    return page(
        "Side by side",
        paragraph(", ".join(dict.fromkeys(group.names[FOLDER] for group in groups))),
        [
            section("Results", *warned, table.html(), paragraph(f"{legend(groups, by)} {MEANS}", "note")),
            section("What differs", differing.html() if differing.rows else paragraph("Nothing but seeds.")),
            section("What it took", costs(groups).html()),
            section("By round", *warned, curves(groups, by)),
            *closing([run.config for group in groups for run in group.runs], table),
        ],
    )
