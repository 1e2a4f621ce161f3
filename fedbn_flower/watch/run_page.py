"""The page of one run: rounds as they come, sites, what was lost and refused."""

from collections.abc import Mapping, Sequence

from ..core.ground.columns import PRIVACY, SECONDS
from ..core.text import duration, number_of
from ..records.metrics import shown, spelt
from .curves import FAILURES, Federation, client_columns, leading_column
from .index import Entry
from .page import (
    ASSETS,
    Asked,
    choice,
    data,
    html,
    metric_of,
    of_curves,
    page,
    picture,
    swatch,
    table,
    tick,
    words,
)

MEMORY = "memory of its process"
LATEST = 50
"""Rounds and failures that the page of a run shows as text; all of them are in the files."""


def run_page(entry: Entry, asked: Asked) -> str:
    """Return the page of a run; what changes comes by itself, and again."""
    metrics = list([{}, *entry.run.metrics][-1])[1:]
    heats = client_columns(entry)
    settings = table(["key", "value"], [words(key, value) for key, value in entry.keys.items()])
    chosen = of_curves(asked, metrics, metric_of(asked, [entry])) + tick("sites", "by site", asked.sites)
    parts = {
        "chosen": chosen + choice("heat", "heat map of", heats, leading_column(entry, asked.heat)),
        "curves": picture("curves", "Curve of the run; its numbers are in the table of rounds"),
        "heat": picture("heat", "Heat map by site and round; its numbers are in the CSV file"),
        "note": html(entry.values["note"]),
    }
    said = {"name": html(entry.name), "facts": facts(entry), "rounds": rounds(entry), "settings": settings}
    return page(entry.name, ASSETS["run"].format(**said, **parts))


def facts(entry: Entry) -> str:
    """Return how a run stands, as a list of facts."""
    metric, figures, why = entry.main_metric, entry.figures, entry.run.summary.stopped
    left, took = entry.seconds_left, figures.get(SECONDS)
    rounds, done = entry.run.rounds, entry.run.rounds_done
    epsilon = "epsilon of its budget" if entry.keys.get("dp-epsilon") else "epsilon"
    said = {
        "state": (f"{entry.state}: {why}" if why else entry.state, None),
        f"of {number_of(rounds, 'round')}" if rounds else "rounds": (str(done), done),
        "about left": ("" if left is None else duration(left), left),
        spelt(metric): (shown(metric, figures.get(metric)), figures.get(metric)),
        "whole run": ("" if took is None else duration(took), took),
        "lost or refused": (str(int(entry.run.total(FAILURES))), None),
        epsilon: (_epsilon(entry), figures.get(PRIVACY[0])),
        f"clients in a sum, {entry.keys.get('secagg-min')} at least": (_sums(entry), None),
    }
    totals = {way: entry.run.total(f"bytes-{way}") for way in ("sent", "received")}
    said |= {
        what: (f"{n / 1e6:.2f} MB" if n else "", n) for what, n in (totals | {MEMORY: entry.memory}).items()
    }
    form = '<div><dt>{}</dt><dd><data value="{}">{}</data></dd></div>\n'
    items = (form.format(html(name), html(value), html(text)) for name, (text, value) in said.items() if text)
    return f'<dl class="facts">{"".join(items)}</dl>'


def _epsilon(entry: Entry) -> str:
    spent, budget = entry.figures.get(PRIVACY[0]), entry.keys.get("dp-epsilon")
    return "" if spent is None else f"{spent:.4g} of {budget:g}" if budget else f"{spent:.4g}"


def _sums(entry: Entry) -> str:
    """Return of how many clients sums were, with secure aggregation; empty without."""
    if (mode := entry.keys.get("secagg", "off")) == "off":
        return ""
    said = entry.run.summary.extensions.get("secagg", {}).get("sums-of")
    counts = {*(said or (int(row["replies"]) for row in entry.run.metrics))} - {0}
    numbers = " to ".join(map(str, sorted({min(counts, default=0), max(counts, default=0)})))
    return numbers if mode == "on" else f"{numbers}, unmasked"


def rounds(entry: Entry) -> str:
    """Return the latest rounds, the last one first, as the file spells them."""
    latest = entry.run.metrics[: -LATEST - 1 : -1]
    header = list(latest[0]) if latest else ["round"]
    rows = ["".join(data(row.get(name, "")) for name in header) for row in latest]
    return f"<h2>The last {number_of(len(rows), 'round')}</h2>\n{table([html(n) for n in header], rows)}"


def sites(of: Federation, colours: Mapping[str, str]) -> str:
    """Return a table of the sites, with their lines' colours, and the latest lost and refused answers."""
    last, metric = of.entry.run.rounds_done, leading_column(of.entry)
    answered = of.sites.answered
    values = {partition: v for partition in of.names for v in of.sites.of(partition)[1][-1:].tolist()}
    rows = [
        f'<th scope="row">{swatch(colours.get(name, ""))}{html(name)}</th>{data(answered.get(partition))}'
        f"<td>{_behind(last, answered, partition, of.failed.get(partition, []))}</td>"
        f"{data(values.get(partition), shown(metric, values.get(partition)))}"
        f"{data(len(of.failed.get(partition, [])))}"
        for partition, name in of.names.items()
    ]
    latest = of.failures[: -LATEST - 1 : -1]
    failures = [words(r["round"], r["phase"], of.names[int(r["partition"])], r["reason"]) for r in latest]
    head = ["site", "last answer in round", "missing", html(spelt(metric)), "lost or refused"]
    lost_answers = table(["round", "phase", "site", "why"], failures) if failures else "<p>None.</p>\n"
    return f"<h2>Sites</h2>\n{table(head, rows)}<h2>Lost and refused answers</h2>\n{lost_answers}"


def _behind(last: int, answered: Mapping[int, int], of: int, failed: Sequence[Mapping[str, str]]) -> str:
    """Return since when a site is missing, asked or not; empty if it has answered in the last round.

    And where only sums are seen, so that nobody is known to have answered.
    """
    if failed and int(failed[-1]["round"]) == last:
        return "lost in the last round"
    if of not in answered:
        return "no answer yet" * bool(answered)
    return f"no answer for {number_of(last - answered[of], 'round')}" * (answered[of] < last)
