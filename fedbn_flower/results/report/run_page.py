"""The page of one run."""

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...config.help import as_text
from ...records.metrics import shown
from ..plotting.plots import figure_names
from ..plotting.report_plots import counts_of, curve_of, per_client, seconds_split
from ..run_reader import Run
from ..summary import NO_FIGURES
from .citations import citations
from .html import command, facts, folded, page, paragraph, pictures, section, verbatim, warning
from .repeat_command import command_of, names_objects
from .tables import Table

if TYPE_CHECKING:
    from ..plotting.svg_figure import InlineFigure

LISTED = 12  # clients that have a row each
WORST = 5
CLASSES = 30
MODELS = {
    "global": "global model",
    "mean": "mean over examples",
    "client-mean": "mean over clients",
    "worst-client": "worst client",
    "worst-tenth": "worst tenth of clients",
    "client-std": "standard deviation of clients",
}
"""What the summary tells figures of."""
ENDINGS = {
    "patience": "the validation figure did not improve any more",
    "target": "it had reached the target accuracy",
}
"""Why a run may end before its last round."""
MEANS = "Mean over examples: every held-out example counts alike; mean over clients: every client does."


def run_page(run: Run) -> str:
    """The whole page."""
    table = figures_table(run)
    figures: dict[str, InlineFigure | None] = {
        f"{name.capitalize()} by round": curve_of(run, name) for name in figure_names(run.metrics)
    }
    figures |= {
        f"{run.by.capitalize()} of each client": per_client(run),
        "Training examples by client": counts_of(run),
        "Seconds a round": seconds_split(run),
    }
    told = [paragraph(sentence(run)), facts(_facts(run))]
    results = [table.html(), paragraph(MEANS, "note")] if table.rows else []
    return page(
        f"{run.config.get('model')} on {run.dataset}: {run.algorithms}",
        "".join(told),
        [
            warning("Failures", *_failures(run)),
            section("Results", *results, pictures(figures)),
            section("Worst clients", *_worst(run)),
            section("Classes", *_classes(run)),
            section("New clients", *_new_clients(run)),
            section("The same again", *repeat(run)),
            *closing([run.config], table),
        ],
    )


def sentence(run: Run) -> str:
    """What ran, in plain English."""
    config, summary = run.config, run.summary
    clients = f"{config.get('num-clients')} clients trained {config.get('model')} on {run.dataset}"
    budget = f"{_counted(config.get('local-epochs'), 'local epoch')} a round"
    told = [
        f"{clients} (partition {config.get('partition')}), {budget}, under the server rule "
        f"{config.get('strategy')} with client {config.get('client')} and objective "
        f"{config.get('objective')}; seed {config.get('seed')}."
    ]
    done, asked = summary.get("rounds"), config.get("rounds")
    if done is None:
        told.append("It was stopped before there was a summary.")
    else:
        took = f"{_counted(done, 'round')} took {summary['seconds']:.1f} s"
        rest = f"; {asked} were asked for" if done != asked else ""
        told.append(f"Its {took}{rest}.")
    if reason := ENDINGS.get(summary.get("stopped") or ""):
        told.append(f"It ended early: {reason}.")
    if summary.get("best-round"):
        told.append(f"The model kept is that of round {summary['best-round']}.")
    return " ".join(told)


def _counted(number: object, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _facts(run: Run) -> dict[str, str]:
    """The figures that one looks for first."""
    summary, by = run.summary, run.by
    told = {
        f"{by}, {MODELS[key]}": shown(by, (summary.get(key) or {}).get(by))
        for key in ("global", "mean", "client-mean", "worst-client")
    }
    target = summary.get("rounds-to-target")
    if target:
        reached = next((target[key] for key in ("mean", "global") if target.get(key) is not None), None)
        told[f"rounds to {shown('accuracy', target['target'])}"] = str(reached or "not reached")
    if "seconds-per-round" in summary:
        told["seconds a round"] = f"{summary['seconds-per-round']:.3g}"
    if "client-updates-per-second" in summary:
        told["client updates a second"] = f"{summary['client-updates-per-second']:.3g}"
    for key, name in (("bytes-sent", "sent to clients"), ("bytes-received", "received from clients")):
        if key in summary:
            told[name] = size(summary[key])
    if "failures" in summary:
        told["failures"] = str(summary["failures"])
    return told


def size(number: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.4g} TB"


def figures_table(run: Run) -> Table:
    """The last figures: of the global model, the clients' means, and each client if they are few."""
    models = {name: run.summary.get(key) for key, name in MODELS.items()}
    told: dict[str, Mapping[str, Any]] = {name: model for name, model in models.items() if model}
    clients = run.summary.get("clients", {})
    if len(clients) <= LISTED:
        told |= {f"client {_name(run, partition)}": figures for partition, figures in clients.items()}
    return _table("model", told)


def _table(first: str, told: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each model; training examples where one tells how many it has."""
    names = list(dict.fromkeys(name for figures in told.values() for name in figures))
    names = [name for name in names if name not in NO_FIGURES]
    counted = any("num-examples" in figures for figures in told.values())
    rows = [
        [
            model,
            *([str(figures.get("num-examples", ""))] if counted else []),
            *(shown(name, figures.get(name)) for name in names),
        ]
        for model, figures in told.items()
    ]
    return Table([first, *(["training examples"] if counted else []), *names], rows)


def _name(run: Run, partition: str) -> str:
    return run.client_names.get(int(partition), partition)


def _worst(run: Run) -> Iterator[str]:
    clients = {i: c for i, c in run.summary.get("clients", {}).items() if c.get(run.by) is not None}
    if len(clients) <= LISTED:
        return
    upward = run.by == "accuracy"
    order = sorted(clients, key=lambda i: clients[i][run.by], reverse=not upward)[:WORST]
    yield _table("client", {_name(run, i): clients[i] for i in order}).html()
    yield paragraph(
        f"The {WORST} of {len(clients)} with the {'lowest' if upward else 'highest'} {run.by}.", "note"
    )


def _classes(run: Run) -> Iterator[str]:
    told = {key: run.summary.get(key) for key in ("per-class", "global-per-class")}
    columns = {("clients", "global model")[i]: t for i, t in enumerate(told.values()) if t}
    if not columns:
        return
    first = next(iter(columns.values()))
    rows = [
        [str(name), str(examples), *(shown("accuracy", t["accuracy"][i]) for t in columns.values())]
        for i, (name, examples) in enumerate(zip(first["names"], first["examples"], strict=True))
    ]
    header = ["class", "held-out examples", *(f"accuracy, {whose}" for whose in columns)]
    note = ""
    if len(rows) > CLASSES:
        order = sorted(range(len(rows)), key=lambda i: (first["accuracy"][i] is None, first["accuracy"][i]))
        note = f"The {CLASSES} of {len(rows)} classes with the lowest accuracy."
        rows = [rows[i] for i in order[:CLASSES]]
    yield Table(header, rows).html()
    yield paragraph(note, "note") if note else ""


def _new_clients(run: Run) -> Iterator[str]:
    told = run.summary.get("new-clients")
    if not told:
        return
    models = {MODELS[key]: told[key] for key in ("mean", "client-mean") if told.get(key)}
    clients = told.get("clients", {})
    if len(clients) <= LISTED:
        models |= {f"client {_name(run, partition)}": c for partition, c in clients.items()}
    yield paragraph("Clients that took no part in training, evaluated at the end as new sites.")
    yield _table("model", models).html()


def _failures(run: Run) -> Iterator[str]:
    rows = [[client, reason, str(times)] for client, times, reason in run.failures()]
    if rows:
        yield Table(["client", "why the answer was not used", "times"], rows, words=2).html()
    elif run.summary.get("failures"):
        yield paragraph(f"{run.summary['failures']} answers were not used; their reasons were not kept.")


def repeat(run: Run) -> Iterator[str]:
    """The command, the versions, and every key."""
    yield command(command_of(run.config))
    if names_objects(run.config):
        yield paragraph("It was given objects of one's own from Python, which no command can name.", "note")
    versions = run.config.get("versions") or {}
    yield paragraph(", ".join(f"{name} {version}" for name, version in versions.items()), "note")
    rows = [[key, as_text(value)] for key, value in run.config.items() if key != "versions"]
    yield folded("Every key", Table(["key", "value"], rows, words=2).html())


def closing(configs: list[Mapping[str, Any]], table: Table) -> list[str]:
    """What every page ends with: the table as LaTeX, and what to cite."""
    latex = folded("The table as LaTeX, with booktabs", verbatim(table.latex())) if table.rows else ""
    note = html.escape("Flower, and the algorithms of this run that have a paper.")
    return [section("For a paper", latex, f'<p class="note">{note}</p>\n', verbatim(citations(configs)))]
