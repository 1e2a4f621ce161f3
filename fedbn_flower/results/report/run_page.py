"""The page of one run."""

import html
import shlex
from collections.abc import Iterable, Iterator, Mapping
from math import exp
from typing import TYPE_CHECKING, Any

from ...config.help import as_text
from ...config.metric_names import NONE
from ...core.ground.columns import SECONDS, SIMULATED_SECONDS
from ...extensions import BUILT_IN
from ...privacy.private_run import NO_SEED
from ...privacy.terms import NEIGHBOURS, SUMMED
from ...records.metrics import decimals, heading, shown, spelt
from ...records.summary import tested_on
from ..comparisons.held_out import CASES, held_out_table
from ..manifest import LEARNT, UNUSED, WARNINGS
from ..plotting.drawer import drawn_of_run
from ..plotting.plots import metric_names
from ..plotting.report_plots import (
    client_curves,
    epsilon_curve,
    learning_rates,
    metric_curve,
    partition_counts,
    seconds_split,
)
from ..run_reader import Run
from .citations import citations
from .html import (
    command,
    folded,
    gallery,
    key_values,
    page,
    paragraph,
    section,
    verbatim,
    warning,
    without_folders,
)
from .methods import title_of
from .repeat_command import command_of, uses_session_objects
from .sections.attack import attack
from .sections.best_round import best_round, how_chosen
from .sections.client_tables import MODELS, metrics_by_class, metrics_table, new_clients, worst_clients
from .sections.decisions import decisions, recalibration
from .sections.intervals import in_words
from .sections.predictions import predictions
from .sections.segmentation import segmentation_by_case
from .sections.subgroups import subgroups
from .tables import Table
from .unfinished import still_rising

if TYPE_CHECKING:
    from ..plotting.drawer import DrawnApart
    from ..plotting.svg_figure import InlineFigure

MAX_CLASSES = 30  # rows in the table of classes
ENDINGS = {
    "patience": "the validation metric stopped improving",
    "target": "the target was reached",
    "budget": "the privacy budget was spent",
}
"""Why a run may end before its last round."""
SAMPLINGS = {
    "poisson": "each client was asked with probability {probability:.4g}, drawn in secret",
    "fixed": "a sample of {clients-a-round:g} clients was asked, drawn in secret",
    "all": "all clients were asked",
    "cyclic": "one of {groups} fixed groups was asked, in turn",
}
"""What happens first in a round with differential privacy."""
SECRET = ("poisson", "fixed")
"""Samplings that protect only while it is not known who was asked."""
SECURE = {
    "mechanism": "noise, drawn exactly",
    "grid-steps": "steps of its grid in its deviation",
    "accountant": "epsilon is found by",
}
"""What is said of secure noise."""
CLAIMS = {
    "simulated": "This epsilon is simulated: the random numbers follow from a public seed, so this run "
    "itself protects nobody. With a secret key it would.",
    "hypothetical": "This epsilon is hypothetical: it would hold with {accounted-clients-a-round:g} clients "
    "a round of {accounted-clients}, and this run had {clients-a-round:g}.",
}
"""What is said of an epsilon that does not hold for the run itself."""
PROTECTED = {
    "example, at each client": "Protected is each single example, from everybody, the server too: a client "
    "needs to trust nobody. In every step each example was in the batch with the same probability, drawn in "
    "secret by its client. Its gradient was scaled down to a bounded length, and Gaussian noise was added to "
    "their sum. Epsilon is the greatest of the clients', as if each had trained in every round.",
    "unit, at each client": "Protected are {unit}, together, from everybody, the server too: a client needs "
    "to trust nobody. In every step each unit was in the batch with the same probability, drawn in secret by "
    "its client. The mean gradient of its rows was scaled down to a bounded length, and Gaussian noise was "
    "added to their sum. Epsilon is the greatest of the clients', as if each had trained in every round.",
    "client, local": "Protected is each client with all of its data, from everybody, the server too: a "
    "client needs to trust nobody. It scaled its update down to a bounded length and added Gaussian noise to "
    "it before it sent anything. Epsilon is that of the client that was asked most often.",
    SUMMED: "Protected is each client with all of its data, from everybody, the server too: it saw masked "
    "numbers, and sums of {survivors} clients or more. Each client scaled its update down to a bounded "
    "length and added a share of the noise before it masked. The noise of {honest-survivors} of them is "
    "counted, as if the others had told theirs. With fewer clients a round had no result. Epsilon is that of "
    "the client that was asked most often.",
}
"""Who is protected, by notion, where clients add the noise."""
ADAPTED = (
    "The bound on an update's length followed the median of the lengths from round to round, by the number "
    "of updates within it. Clients added noise to that number too, in shares: {count-noise:g} is the "
    "deviation of what is counted. Epsilon is that of both."
)
"""What is said of a clip that adapts, where clients add the noise."""
MEANS = "Mean over examples weights all held-out examples equally; mean over clients, all clients."


def means(runs: Iterable[Run]) -> str:
    """Return what the means in a table of these runs are over, and on whose examples clients were tested."""
    words = tested_on(run.summary for run in runs)
    return f"{words[:1].upper()}{words[1:]}. {MEANS}" if words else MEANS


def run_page(run: Run, without_noise: Run | None = None) -> str:
    """Return the page; a private run may be compared with the same one ``without_noise``."""
    table, held_out = metrics_table(run), held_out_table([run])
    lead = [paragraph(sentence(run)), key_values(_key_metrics(run)), *what_travelled(run)]
    below = " ".join(filter(None, [means([run]), still_rising(run)]))
    results = [table.html(), paragraph(below, "note")] if table.rows else []
    return page(
        title_of(run),
        "".join(lead),
        [
            warning("Warnings", *map(paragraph, (*run.config.get(WARNINGS, ()), *run.missed_in_silence))),
            warning("Failures", *_failures(run)),
            section("What is learnt", Table.of_learnt(run.learnt).html() if run.learnt else ""),
            section("Results", *results, *in_words(run), gallery(run_figures(run))),
            section("Best round", *best_round(run)),
            section(f"{CASES.capitalize()} by site", held_out.html() if held_out else ""),
            section("Segmentation by case", *segmentation_by_case(run)),
            section("Privacy", *_privacy(run, without_noise)),
            section("Attack", *attack(run)),
            section("What the server saw", *map(paragraph, _sums(run))),
            section("Predictions", *predictions(run)),
            section("Decisions by site", *decisions(run.binary_cases, run.event)),
            section("Subgroups", *subgroups(run)),
            section("Recalibrated by site", *recalibration(run)),
            section("Worst clients", *worst_clients(run)),
            section("Classes", *_classes(run), *metrics_by_class(run)),
            section("New clients", *new_clients(run)),
            section("Extensions", *_extensions(run)),
            section("Reproduce this run", *how_to_reproduce(run)),
            *closing_sections([run.config], table, *([held_out] if held_out else [])),
        ],
    )


def run_figures(run: Run) -> "dict[str, InlineFigure | DrawnApart | None]":
    """Return the figures of every run by caption."""
    main = heading(run.main_metric)
    return {
        **{f"{heading(name)} by round": drawn_of_run(metric_curve, run, name) for name in metric_names(run)},
        **{
            f"{main} by {cost}": drawn_of_run(metric_curve, run, run.main_metric, cost)
            for cost in run.shown_costs
        },
        f"{main} of each client": drawn_of_run(client_curves, run),
        "Training examples by client": drawn_of_run(partition_counts, run),
        "Learning rate by round": drawn_of_run(learning_rates, run),
        "Seconds per round": drawn_of_run(seconds_split, run),
    }


def sentence(run: Run) -> str:
    """Describe the run in plain English."""
    config, summary = run.config, run.summary
    model, strategy, client, objective = (
        without_folders(str(config.get(key))) for key in ("model", "strategy", "client", "objective")
    )
    clients = f"{config.get('num-clients')} clients trained {model} on {run.dataset}"
    budget = f"{_counted(config.get('local-epochs'), 'local epoch')} per round"
    sentences = [
        f"{clients} (partition {config.get('partition')}), {budget}, with server rule "
        f"{strategy}, client {client} and objective {objective}; seed {config.get('seed')}."
    ]
    done, requested = summary.rounds, config.get("rounds")
    if not done:
        sentences.append("The run stopped before it wrote a summary.")
    else:
        took = f"{_counted(done, 'round')} took {summary.seconds:.1f} s"
        rest = f"; {requested} were requested" if done != requested else ""
        when = f" on {date}" if (date := config.get("date")) else ""
        sentences.append(f"The {took}{when}{rest}.")
    if (reason := summary.stopped) and done != requested:
        sentences.append(f"The run ended early: {ENDINGS.get(reason, reason)}.")
    if chosen := how_chosen(run):
        sentences.append(chosen)
    return " ".join(sentences)


def _counted(number: object, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _key_metrics(run: Run) -> dict[str, str]:
    """Return the most important values by name."""
    summary, metric = run.summary, run.main_metric
    by_group = summary.by_group
    digits = decimals(metric, (figures.get(metric) for figures in by_group.values()))
    values = {
        f"{spelt(metric)}, {MODELS[key]}": shown(metric, by_group[key][metric], digits)
        for key in ("global", "pooled", "mean", "client-mean", "worst-client")
        if not (key == "mean" and "pooled" in by_group)
        if by_group.get(key, {}).get(metric) is not None
    }
    values |= _to_target(run)
    if summary.seconds_per_round is not None:
        values["seconds per round"] = f"{summary.seconds_per_round:.3g}"
    if summary.client_updates_per_second is not None:
        values["client updates per second"] = f"{summary.client_updates_per_second:.3g}"
    sent = {"sent to clients": summary.bytes_sent, "received from clients": summary.bytes_received}
    values |= {name: size(number) for name, number in sent.items() if number is not None}
    if summary.failures is not None:
        values["failures"] = str(summary.failures)
    return values


def _to_target(run: Run) -> dict[str, str]:
    """Return what it took to reach the target, by name; empty without a target."""
    target, costs = run.summary.rounds_to_target, run.summary.costs_to_target
    if not target:
        return {}
    metric = target.metric or run.main_metric
    name = "" if metric == run.main_metric else f"{metric} "
    goal = f"{name}{shown(metric, target.target)}"
    values = {f"rounds to {goal}": str(target.mean or target.global_ or "not reached")}
    if costs and (cost := costs.mean or costs.global_):
        values[f"sent and received to {goal}"] = size(cost.get("bytes") or 0)
        for seconds in (SIMULATED_SECONDS, SECONDS):
            if (took := cost.get(seconds)) is not None:
                values[f"{seconds.replace('-', ' ')} to {goal}"] = f"{took:.1f}"
    return values


def what_travelled(run: Run) -> Iterator[str]:
    """Yield what the bytes are that were sent and received."""
    summary = run.summary
    sent, received = summary.bytes_sent, summary.bytes_received
    if sent is None or received is None or not summary.rounds:
        return
    further = run.config.get("metrics") != NONE
    counts = ", and the counts from which further metrics follow" if further else ""
    yield paragraph(
        f"Sent and received are all arrays of the run as they travelled: {size(sent / summary.rounds)} a "
        "round to the clients, the model for those that train and for those that evaluate; and "
        f"{size(received / summary.rounds)} a round from them, what they trained{counts}.",
        "note",
    )


def size(number: float) -> str:
    """Return a number of bytes as text, in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.4g} TB"


def _classes(run: Run) -> Iterator[str]:
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


def _extensions(run: Run) -> Iterator[str]:
    """Yield what the run's own extensions say of it."""
    for name, found in run.summary.extensions.items():
        rounded = ((key, f"{v:.6g}" if isinstance(v, float) else as_text(v)) for key, v in found.items())
        yield key_values({f"{name}, {key}": value for key, value in rounded})


def _failures(run: Run) -> Iterator[str]:
    rows = [[client, reason, str(count)] for client, count, reason in run.failures()]
    if rows:
        yield Table(["client", "why the answer was not used", "count"], rows, words=2).html()
    elif run.summary.failures:
        yield paragraph(f"{run.summary.failures} answers were not used; the reasons were not recorded.")


def _privacy(run: Run, without_noise: Run | None) -> Iterator[str]:
    """Yield who is protected from whom, by how much, and assuming what."""
    found = run.summary.privacy
    if not found:
        return
    epsilon, claim = found["epsilon"], found["claim"]
    factor, unknown = exp(min(epsilon, 700)), f"whether {NEIGHBOURS[found['adjacency']]}"
    yield key_values(
        {
            "epsilon" if claim not in CLAIMS else f"epsilon, {claim}": f"{epsilon:.3f}",
            "delta": f"{found['delta']:g}",
            f"epsilon planned for {found['planned-rounds']} rounds": f"{found['planned-epsilon']:.3f}",
            "noise, deviation over the clip": f"{found['noise']:g}",
            **({"rounds over which noise is correlated": str(found["bands"])} if "bands" in found else {}),
            **({SECURE[key]: str(found[key]) for key in SECURE if key in found}),
            "models published": str(found["published"]),
        }
    )
    if claim in CLAIMS:
        yield paragraph(CLAIMS[claim].format(**found))
    at_clients = PROTECTED.get(found["notion"])
    sender = "clients sent" if at_clients else "server published"
    yield paragraph(
        f"From all models that the {sender} nobody can tell with certainty {unknown}. Whatever "
        "somebody thinks of the odds of it beforehand, the models change these by a factor of "
        f"e^{epsilon:.3f} = {factor:.3g} at most, but for a probability of {found['delta']:g}."
    )
    if at_clients:
        yield paragraph(at_clients.format(**{"unit": None, **found}))
        if "count-noise" in found:
            yield paragraph(ADAPTED.format(**found))
    else:
        yield from _protected_clients(found)
    if without_noise:
        yield paragraph(_price(run, without_noise))
    yield paragraph("Not covered by this guarantee, and not to be published under it:")
    yield f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in found['outside'])}</ul>\n"
    yield gallery({"Epsilon by round": epsilon_curve(run)})


def _sums(run: Run) -> Iterator[str]:
    """Yield what extensions say that a server saw."""
    for cls in BUILT_IN:
        if found := run.summary.extensions.get(cls.__name__.lower()):
            yield from cls.seen(found)


def _price(run: Run, without_noise: Run) -> str:
    """Return what the noise costs, in the main metric."""
    metric = run.main_metric
    sentences = ["What the noise costs, by the same run without it."]
    for key in ("global", "mean", "client-mean"):
        before, after = (one.summary.by_group.get(key, {}).get(metric) for one in (without_noise, run))
        if before is not None and after is not None:
            values = f"without noise {shown(metric, before)}, with it {shown(metric, after)}"
            sentences.append(f"{heading(metric)}, {MODELS[key]}: {values}.")
    return " ".join(sentences)


def _protected_clients(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield who is protected by client-level privacy, and assuming what."""
    sampling = found["sampling"]
    noise = "Gaussian" if "mechanism" not in found else "discrete Gaussian"
    yield paragraph(
        "Protected is each client with all of its data, from everybody but the server. In every round "
        f"{SAMPLINGS[sampling].format(**found)}; each update was scaled down to a bounded length, "
        f"and {noise} noise was added once to their sum."
    )
    yield paragraph(
        "Assumed: the server is trusted and keeps its key secret"
        + (", and who was asked in which round does not become known." if sampling in SECRET else ".")
    )


def how_to_reproduce(run: Run) -> Iterator[str]:
    """Yield the command, the versions and all settings of a run."""
    yield command(map(shlex.quote, command_of(run.config)))
    if uses_session_objects(run.config):
        yield paragraph("The run was given Python objects, which a command cannot name.", "note")
    if run.summary.privacy and run.config.get("dp-seed", NO_SEED) == NO_SEED:
        yield paragraph("Its noise followed from a secret key: the command draws other noise.", "note")
    versions = run.config.get("versions") or {}
    yield paragraph(", ".join(f"{name} {version}" for name, version in versions.items()), "note")
    shown_elsewhere = ("versions", LEARNT, UNUSED, WARNINGS)
    rows = [[key, as_text(value)] for key, value in run.config.items() if key not in shown_elsewhere]
    yield paragraph("Of paths the last part is shown; config.json has them.", "note")
    yield folded("All settings", Table(["key", "value"], rows, words=2).html())


def closing_sections(configs: list[Mapping[str, Any]], *tables: Table) -> list[str]:
    """Return the last section of every page: the tables as LaTeX, and what to cite."""
    found = "\n".join(table.latex() for table in tables if table.rows)
    latex = folded("The table as LaTeX (booktabs)", verbatim(found)) if found else ""
    note = html.escape("To cite: Flower, and the papers of the algorithms that were used.")
    return [section("For a paper", latex, f'<p class="note">{note}</p>\n', verbatim(citations(configs)))]
