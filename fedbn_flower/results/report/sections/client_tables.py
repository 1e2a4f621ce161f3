"""Tables of models, clients and classes: a row each, with their held-out metrics."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....records.metrics import decimals, heading, shown, spelt
from ....records.summary import JAIN, NewClients, OfClient, Summary
from ...rare_event import led_by_rare_event, main_first
from ...run_reader import Run
from ...summary import AGGREGATED, NOBODY, NON_METRICS, shown_index, shown_mean
from ..html import folded, paragraph
from ..tables import Table
from .intervals import NOTHING_BESIDE, Beside, Intervals, below, with_interval

MAX_LISTED = 12  # clients, above which they have no row each
WORST = 5  # clients in the table of the worst
MODELS = {
    "global": "global model",
    "pooled": "all clients' examples pooled",
    "mean": "mean over examples",
    "aggregated": AGGREGATED,
    "client-mean": "mean over clients",
    "worst-client": "worst client",
    "worst-tenth": "worst tenth of clients",
    "client-std": "standard deviation of clients",
    JAIN: "Jain's index of clients",
}
"""Keys of the summary that hold metrics, each with its name in the report."""
MEANS = (MODELS["mean"], MODELS["client-mean"])


def metrics_table(run: Run) -> Table:
    """Return the summary's metrics: each client's if they are few, the global model's, the clients' means."""
    run = led_by_rare_event(run)
    groups = run.summary.by_group
    if groups.get("worst-tenth") == groups.get("worst-client"):  # of ten clients or fewer it is one client
        groups.pop("worst-tenth", None)
    return _with_intervals(run, run.summary, groups, Intervals.of(run))


def _with_intervals(
    run: Run, part: Summary | NewClients, groups: Mapping[str, OfClient], found: Intervals | None
) -> Table:
    """Return a row for each client, if they are few, and for each group, with their intervals."""
    models: dict[str, OfClient] = {}
    clients = part.clients
    beside: dict[str, Beside] = {}
    if found:  # without further metrics, what is of all examples in one place is the mean over them
        pooled = MODELS["pooled" if part.pooled else "mean"]
        beside = {pooled: found.beside_pooled, MODELS["client-mean"]: found.beside_mean}
    if len(clients) <= MAX_LISTED:
        names = {f"client {_name(run, partition)}": partition for partition in clients}
        models |= {row: clients[partition] for row, partition in names.items()}
        beside |= {row: found.beside(_name(run, p)) for row, p in names.items()} if found else {}
    models |= {MODELS[key]: metrics for key, metrics in groups.items()}
    return _table(run, "model", models, clients, beside, found.header if found else ())


def metrics_by_class(run: Run) -> Iterator[str]:
    """Yield the metrics by class: of all clients' examples, and folded each client's, if they are few."""
    found = run.summary.by_group
    whole = next((key for key in ("pooled", "global", "mean") if key in found), None)
    if not run.by_class or whole is None:
        return
    of_all, keys = found[whole], list(next(iter(run.by_class.values())))
    names = keys if run.config.get("metrics-by-class") else [_class_name(run, key) for key in keys]
    digits = {
        m: decimals(m, (of_all.get(c) for c in columns.values())) for m, columns in run.by_class.items()
    }
    rows = [
        [name, *(shown(m, of_all.get(c[key]), digits[m]) for m, c in run.by_class.items())]
        for name, key in zip(names, keys, strict=True)
    ]
    yield Table(["class", *map(spelt, run.by_class)], rows).html()
    yield paragraph(f"Of {MODELS[whole]}.", "note")
    clients = run.summary.clients
    for metric, columns in run.by_class.items() if len(clients) <= MAX_LISTED else ():
        rows = [
            [
                _name(run, partition),
                *(shown(metric, values.get(column), digits[metric]) for column in columns.values()),
            ]
            for partition, values in clients.items()
        ]
        yield folded(f"{heading(metric)} of each client by class", Table(["client", *names], rows).html())


def _table(
    run: Run,
    first: str,
    models: Mapping[str, OfClient],
    clients: Mapping[str, OfClient] = NOBODY,
    beside: Mapping[str, Beside] = NOTHING_BESIDE,
    counts: Sequence[str] = (),
) -> Table:
    """Return a row per model, with a column of training examples if any model has a count.

    Means over ``clients`` say how many of them have no value. Rows have what is ``beside`` them: intervals,
    and ``counts`` of held-out cases.
    """
    left_out = {*NON_METRICS, *run.class_columns}
    names = list(dict.fromkeys(name for metrics in models.values() for name in metrics))
    names = main_first(run.summary, run.main_metric, (name for name in names if name not in left_out))
    digits = {name: decimals(name, (metrics.get(name) for metrics in models.values())) for name in names}
    counted = any("num-examples" in metrics for metrics in models.values())
    rows = [
        [
            model,
            *([f"{metrics['num-examples']:,}" if "num-examples" in metrics else ""] if counted else []),
            *(beside[model].counts if model in beside else [""] * len(counts)),
            *(
                with_interval(
                    name,
                    shown_index(metrics.get(name))
                    if model == MODELS[JAIN]
                    else shown_mean(name, metrics, clients if model in MEANS else NOBODY, digits[name]),
                    beside[model].intervals.get(name) if model in beside else None,
                    digits[name],
                )
                for name in names
            ),
        ]
        for model, metrics in models.items()
    ]
    header = [first, *(["training examples"] if counted else []), *counts, *map(spelt, names)]
    return Table(header, rows)


def _name(run: Run, partition: str) -> str:
    return run.client_names.get(int(partition), partition)


def _class_name(run: Run, number: str) -> str:
    """Return the name of a class by its number, where metrics by class have numbers."""
    return run.class_names[int(number)] if int(number) < len(run.class_names) else number


def worst_clients(run: Run) -> Iterator[str]:
    """Yield a table of the worst clients, where the clients are too many to have a row each."""
    metric = run.main_metric
    clients = {i: c for i, c in run.summary.clients.items() if c.get(metric) is not None}
    if len(clients) <= MAX_LISTED:
        return
    higher_is_better = run.higher_is_better(metric)
    order = sorted(clients, key=lambda i: clients[i][metric], reverse=not higher_is_better)[:WORST]
    yield _table(run, "client", {_name(run, i): clients[i] for i in order}).html()
    worst = "lowest" if higher_is_better else "highest"
    yield paragraph(f"The {WORST} of {len(clients)} clients with the {worst} {spelt(metric)}.", "note")


def new_clients(run: Run) -> Iterator[str]:
    """Yield a table of the clients that did not train."""
    run = led_by_rare_event(run)
    new = run.summary.new_clients
    if not new:
        return
    groups = {"pooled": new.pooled, "mean": new.mean, "client-mean": new.client_mean}
    found = Intervals.of(run, new=True)
    yield paragraph("Clients that did not train; they were evaluated at the end as new sites.")
    yield _with_intervals(run, new, {key: one for key, one in groups.items() if one}, found).html()
    yield from below(found)
    if received := run.summary.new_clients_as_received:
        yield paragraph(
            "The same without BatchNorm statistics of their own: as received, or as at the start."
        )
        named = {f"client {_name(run, partition)}": c for partition, c in received.clients.items()}
        yield _table(run, "model", named, received.clients).html()


class Pair(NamedTuple):
    """A row: the metrics of a model and the others, with their intervals."""

    name: str
    plain: OfClient
    other: OfClient
    ends: Mapping[str, Any]
    other_ends: Mapping[str, Any]
    clients: Sequence[Mapping[str, OfClient]] = (NOBODY, NOBODY)
    """Over which both are means, if they are."""


def twice(
    run: Run, found: NewClients, word: str, parameter: str = "", intervals: Mapping[str, Any] | None = None
) -> Table:
    """Return a row for all clients together, for their means, and for each if they are few.

    Parameters
    ----------
    run : Run
        The run, whose summary has the plain metrics.
    found : NewClients
        The other metrics.
    word : str
        What these are called.
    parameter : str
        How columns of clients are called that the plain ones lack, or what they begin with.
    intervals : Mapping, optional
        Of the other metrics, as the summary has those of the plain ones.
    """
    pairs = list(_pairs(run, found, intervals or {}))
    names = (name for name in found.mean or {} if name not in run.class_columns)
    metrics = main_first(run.summary, run.main_metric, names)
    keys = list(dict.fromkeys(key for client in found.clients.values() for key in client))
    parameters = [key for key in keys if parameter and key.startswith(parameter)]
    header = [
        "model",
        *parameters,
        *(text for name in metrics for text in (spelt(name), f"{spelt(name)}, {word}")),
    ]
    return Table(
        header,
        [
            [pair.name, *(_number(pair.other.get(k)) for k in parameters), *_cells(pair, metrics)]
            for pair in pairs
        ],
    )


def _pairs(run: Run, found: NewClients, intervals: Mapping[str, Any]) -> Iterator[Pair]:
    plain = run.summary
    of_plain = plain.intervals or {}
    of_groups = (
        ("pooled", plain.pooled, found.pooled, "pooled"),
        ("mean", plain.mean, found.mean, "" if plain.pooled else "pooled"),
        ("client-mean", plain.client_mean, found.client_mean, "mean"),
    )
    for model, before, other, key in of_groups:
        if other:
            over = (NOBODY, NOBODY) if model == "pooled" else (plain.clients, found.clients)
            ends = of_plain.get(key, {}), intervals.get(key, {})
            yield Pair(MODELS[model], before or {}, other, *ends, over)
    if len(found.clients) > MAX_LISTED:
        return
    for number, client in found.clients.items():
        name = str(client.get("name", number))
        ends, other_ends = (of.get("clients", {}).get(name, {}) for of in (of_plain, intervals))
        yield Pair(f"client {name}", plain.clients.get(number, {}), client, ends, other_ends)


def _cells(pair: Pair, metrics: Sequence[str]) -> Iterator[str]:
    for name in metrics:
        both = (pair.plain, pair.ends), (pair.other, pair.other_ends)
        for (values, ends), clients in zip(both, pair.clients, strict=True):
            yield with_interval(name, shown_mean(name, values, clients), ends.get(name))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


MAX_CLASSES = 30  # rows in the table of classes


def classes(run: Run) -> Iterator[str]:
    """Yield the accuracy of each class, and the metrics by class."""
    yield from _accuracies(run)
    yield from metrics_by_class(run)


def _accuracies(run: Run) -> Iterator[str]:
    found = {"clients": run.summary.per_class, "global model": run.summary.global_per_class}
    columns = {name: table for name, table in found.items() if table}
    if not columns:
        return
    first = next(iter(columns.values()))
    rows = [
        [str(name), f"{examples:,}", *(shown("accuracy", column.accuracy[i]) for column in columns.values())]
        for i, (name, examples) in enumerate(zip(first.names, first.examples, strict=True))
    ]
    header = ["class", "held-out examples", *(f"accuracy, {name}" for name in columns)]
    note = ""
    if len(rows) > MAX_CLASSES:
        order = sorted(range(len(rows)), key=lambda i: (first.accuracy[i] is None, first.accuracy[i] or 0.0))
        note = f"The {MAX_CLASSES} of {len(rows)} classes with the lowest accuracy."
        rows = [rows[i] for i in order[:MAX_CLASSES]]
    yield Table(header, rows).html()
    yield paragraph(note, "note") if note else ""
