"""The pages as HTML. What folders say is escaped here, and nowhere else."""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from html import escape
from itertools import chain
from pathlib import Path
from urllib.parse import parse_qs, quote

from ..config.help import as_text
from ..core.errors import UserError, not_allowed, unknown_name
from ..core.text import number_of, visible
from ..names import short
from ..records.metrics import shown, spelt
from ..results.report.runs_by_seed import (
    SEED,
    Group,
    Verdicts,
    common_metric,
    led_groups,
    legend,
    metrics_table,
    verdicts,
)
from ..results.report.tables import Table
from ..results.run_reader import Run
from .curves import AXES, MOST_LINES, ROUND, Line, groups_of, line_of
from .figures import swatches
from .index import DOWN, Entry, Index, Standing, differing
from .run_table import cell, columns_of, keys_of

ASSETS = tomllib.loads(Path(__file__).with_name("assets.toml").read_text())
KEPT = 4
"""Tables of tests that are kept: those of a few pages, whose runs have not changed."""
MOST_SMOOTH = 1000
"""Rounds over which curves are smoothed."""


def html(text: object) -> str:
    """Return a text as HTML, with nothing that is not seen."""
    return escape(visible(as_text(text)))


@dataclass(frozen=True)
class Asked:
    """What the reader has chosen, as the address says it: ``of`` is the page's run, ``run`` the ticked."""

    of: str = ""
    where: str = ""
    sort: str = ""
    by: str = ""
    metric: str = ""
    heat: str = ""
    axis: str = ROUND
    smooth: int = 1
    logx: bool = False
    logy: bool = False
    sites: bool = False
    dark: bool = False
    run: tuple[str, ...] = ()

    @classmethod
    def read(cls, query: str) -> "Asked":
        """Read the part of an address after the question mark.

        Raises
        ------
        UserError
            When there is no such axis, or smoothing is not by a number of rounds.
        """
        found = parse_qs(query)
        smooth = found.get("smooth", ["1"])[-1]
        if not (smooth.isdecimal() and 1 <= int(smooth) <= MOST_SMOOTH):
            raise not_allowed("smooth", smooth, f"a whole number from 1 to {MOST_SMOOTH}")
        given = {f.name: type(vars(cls)[f.name])(found[f.name][-1]) for f in fields(cls) if f.name in found}
        if given.get("axis", ROUND) not in AXES:
            raise unknown_name("axis", given["axis"], AXES)
        return cls(**{**given, "run": tuple(found.get("run", ()))})


def page(title: str, body: str) -> str:
    """Return a whole page; the body is HTML."""
    return str(ASSETS["page"].format(title=html(title), body=body))


def picture(name: str, label: str) -> str:
    """Return the place of a picture, which the script draws, with its files."""
    return str(ASSETS["picture"].format(name=name, label=html(label)))


def choice(name: str, label: str, options: Iterable[str], chosen: str) -> str:
    """Return a list to choose from; the empty option is what the page takes by itself."""
    of = {option: " selected" * (option == chosen) for option in options}
    texts = "".join(f'<option value="{html(o)}"{mark}>{html(o or "-")}</option>' for o, mark in of.items())
    return f'<label>{label}<select name="{name}">{texts}</select></label>'


def tick(name: str, label: str, on: bool) -> str:
    """Return a box to tick."""
    return f'<label class="tick"><input type="checkbox" name="{name}"{" checked" * on}>{label}</label>'


def of_curves(asked: Asked, metrics: Iterable[str], metric: str) -> str:
    """Return what is chosen of a picture of curves."""
    limits = f'type="number" min="1" max="{MOST_SMOOTH}" value="{asked.smooth}"'
    smooth = f'<label>mean of the last rounds<input name="smooth" {limits}></label>'
    lists = choice("metric", "metric", metrics, metric) + choice("axis", "over", AXES, asked.axis)
    return lists + smooth + tick("logx", "log x", asked.logx) + tick("logy", "log y", asked.logy)


def table(header: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table of rows of cells, all of it HTML."""
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    return str(ASSETS["table"].format(head=head, body="".join(f"<tr>{row}</tr>" for row in rows)))


def of_report(found: Table, best: Collection[int] = ()) -> str:
    """Return a table as reports have it, which a keyboard can scroll."""
    return found.html(best).replace("<div ", '<div tabindex="0" ', 1)


def data(value: object, text: str | None = None) -> str:
    """Return a cell with a number, as it is shown and, for programs, as the file has it."""
    said = as_text(value)
    return f'<td class="number"><data value="{html(said)}">{html(said if text is None else text)}</data></td>'


def words(*texts: object) -> str:
    """Return a row of cells with text, the first of which names the row."""
    first, *others = map(html, texts)
    return f'<th scope="row">{first}</th>' + "".join(f"<td>{text}</td>" for text in others)


def swatch(colour: str) -> str:
    """Return what shows the colour of a line; empty of none."""
    return f'<span class="swatch" style="background:{colour}"></span> ' if colour else ""


# ---- all runs ---------------------------------------------------------------------------------------


def metric_of(asked: Asked, entries: Sequence[Entry]) -> str:
    """Return the metric that is drawn: the one asked for, else of those that lead a run what most have."""
    leading = dict.fromkeys(entry.by_round for entry in entries) or ["loss"]
    return asked.metric or max(leading, key=lambda name: sum(name in entry.columns for entry in entries))


def ticked(asked: Asked, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the runs that are ticked; all if none is."""
    return [entry for entry in entries if entry.name in asked.run] or entries


def drawn_lines(asked: Asked, entries: Sequence[Entry]) -> list[Line]:
    """Return the curves of the runs that are ticked, else of the first `MOST_LINES`; or of groups."""
    metric, chosen = metric_of(asked, entries), ticked(asked, entries)
    groups = groups_of(chosen, asked.by) if asked.by else {entry.name: [entry] for entry in chosen}
    return [line_of(name, found, metric, asked.axis) for name, found in list(groups.items())[:MOST_LINES]]


def caption_of(asked: Asked, lines: Sequence[Line], metric: str, of: int) -> str:
    """Say what a picture of curves shows."""
    many = f", the first {len(lines)} of {of}" if MOST_LINES == len(lines) < of else ""
    spread = ", mean and standard deviation of each group's runs, in rounds that all have" if asked.by else ""
    smooth = f"; smoothed: bold is the mean of the last {asked.smooth} rounds, pale what was measured"
    none = "" if any(line.x for line in lines) else f": no values by {asked.axis}"
    return f"{spelt(metric)}{none}{spread}{many}{smooth if asked.smooth > 1 else ''}"


def runs_page(index: Index, asked: Asked, standing: Standing | None) -> str:
    """Return the page of all runs; its table and curves come by themselves, and again."""
    federation = '<p><a href="federation">the federation</a></p>\n' if standing else ""
    entries, names = list(index.entries.values()), index.names()
    metrics = list(dict.fromkeys(name for entry in entries for name in (entry.run.metrics or [{}])[-1]))[1:]
    by = ["", *(key for key in differing(entries) if key != "seed")]
    known = "".join(f'<option value="{html(name)}">' for name in names)
    folder, where, sort = index.folder.resolve().name, html(asked.where), html(asked.sort)
    metric = metric_of(asked, index.chosen(asked.where))
    chosen = choice("by", "groups by", by, asked.by) + of_curves(asked, metrics, metric)
    curves = picture("curves", "Curves of the runs; their figures are in the table")
    parts = {"curves": curves, "table": runs_table(index, asked), "federation": federation, "chosen": chosen}
    body = ASSETS["runs"].format(folder=html(folder), where=where, sort=sort, known=known, **parts)
    return page(f"Runs in {folder}", body)


def runs_table(index: Index, asked: Asked) -> str:
    """Return the table of the runs that were asked for, that of groups before it."""
    entries = index.chosen(asked.where, asked.sort)
    lines = drawn_lines(asked, entries)
    colours = swatches([line.name for line in lines])
    columns = [*chain(*columns_of(entries, asked.sort.removesuffix(DOWN)))]
    heads = (f'<button type="button" data-sort="{n}" data-key="{n}">{n}</button>' for n in map(html, columns))
    rows = (_row(entry, columns, asked, colours.get(entry.name, "")) for entry in entries)
    count = f"{len(entries)} of {number_of(len(index.entries), 'run')}"
    said = "".join(f"<p>{html(line)}</p>" for line in (count, *index.damaged.values()))
    groups = _groups(asked, entries, lines, colours) if asked.by else ""
    return groups + table(["star", "draw", *heads, "note"], rows) + said


def real_differences(index: Index, asked: Asked) -> str:
    """Return which runs of those ticked differ in more than their seed, by tests, as a sweep's table does."""
    return _tested(tuple(e for e in ticked(asked, index.chosen(asked.where)) if e.state == "ended"))


@lru_cache(KEPT)
def _tested(entries: tuple[Entry, ...]) -> str:
    """Return the table and the sentence of runs that have ended; empty if nothing is known of them."""
    names = {key: values for key, values in keys_of(entries).items() if key != SEED}
    cells: dict[tuple[str, ...], list[Run]] = {}
    for number, entry in enumerate(entries):
        cells.setdefault(tuple(short(of[number]) for of in names.values()), []).append(entry.run)
    if len(cells) < 2 or verdicts() is Verdicts:
        return ""
    if len(cells) > MOST_LINES:
        kinds = f"{len(cells)} groups of runs that differ only in their seed"
        return f"<p>These are {kinds}; at most {MOST_LINES} are compared by tests. Tick some.</p>"
    groups = led_groups([Group(dict(zip(names, cell, strict=True)), runs) for cell, runs in cells.items()])
    metric, datasets = common_metric(groups), [entry.run.dataset for entry in entries]
    told = verdicts()(entries[0].run.folder.parent).compare(groups, metric, datasets)
    found = of_report(metrics_table(groups, metric, told=told), told.alike if told.known else ())
    words = f'<p class="note">{html(f"{legend(groups, metric)} {told.sentence}")}</p>\n'
    return told.sentence and f"<h2>Which differences are real</h2>\n{found}{words}"


def _groups(asked: Asked, entries: Sequence[Entry], lines: Sequence[Line], colours: Mapping[str, str]) -> str:
    metric = metric_of(asked, entries)
    rows = [
        f"<td>{swatch(colours[line.name])}{html(line.name)}</td>{data(line.runs)}"
        f"{data(line.x[-1], f'{line.x[-1]:g}')}{data(line.y[-1], shown(metric, line.y[-1]))}"
        f"{data(s, shown(metric, s))}"
        for line in lines
        if line.x
        for s in [None, *line.spread][-1:]
    ]
    return table(["group", "runs", html(asked.axis), html(metric), "standard deviation"], rows)


def _row(entry: Entry, columns: Sequence[str], asked: Asked, colour: str) -> str:
    name, starred = html(entry.name), bool(entry.values["starred"])
    checked = " checked" if entry.name in asked.run else ""
    values = [(entry.values.get(column), cell(entry, column)) for column in columns[1:]]
    cells = "".join(data(v, t) if isinstance(v, int | float) else f"<td>{html(t)}</td>" for v, t in values)
    return (
        f'<td><button type="button" class="star" data-star="{name}" data-key="star {name}" '
        f'aria-pressed="{as_text(starred)}" aria-label="star {name}">{"★" if starred else "☆"}</button></td>'
        f'<td><input type="checkbox" name="run" value="{name}" data-key="{name}"{checked} '
        f'aria-label="draw {name}"></td>'
        f'<td>{swatch(colour)}<a href="run?of={quote(entry.name, safe="")}">{name}</a></td>{cells}'
        f"<td>{html(entry.values['note'])}</td>"
    )


def difference_page(index: Index, asked: Asked) -> str:
    """Return the settings in which the ticked runs differ.

    Raises
    ------
    KeyError
        When one of them has gone.
    UserError
        When there are fewer than two.
    """
    entries = [index.entries[name] for name in asked.run]
    if len(entries) < 2:
        raise UserError("difference: tick at least two runs")
    rows = [words(key, *(entry.keys.get(key) for entry in entries)) for key in differing(entries)]
    found = table(["key", *(html(entry.name) for entry in entries)], rows)
    return page("What differs", f'<p><a href=".">all runs</a></p><h1>What differs</h1>{found}<form></form>')


def federation_page(standing: Standing) -> str:
    """Return the page of a consortium; its tables come by themselves, and again."""
    name = standing.folder.resolve().name
    tables = '<section aria-label="How its sites stand" data-part="standing"></section>\n<form></form>'
    return page(name, f'<p><a href=".">all runs</a></p>\n<h1>Federation {html(name)}</h1>\n{tables}')


def standing_tables(standing: Standing) -> str:
    """Return what is said of a consortium."""
    tables = standing.tables(standing.stamp).items()
    return "".join(f"<h2>{html(title)}</h2>\n{of_report(found)}" for title, found in tables)
