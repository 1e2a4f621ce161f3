"""The page of one run."""

from collections.abc import Iterator, Sequence

from ...config.metric_names import NONE
from ...core.ground.columns import SECONDS, SIMULATED_SECONDS
from ...records.metrics import decimals, shown, spelt
from ..run_reader import Run
from .html import key_values, page, paragraph, without_folders
from .sections.best_round import how_chosen
from .sections.client_tables import MODELS
from .sections_of_a_run import sections_of

ENDINGS = {
    "patience": "the validation metric stopped improving",
    "target": "the target was reached",
    "budget": "the privacy budget was spent",
}
"""Why a run may end before its last round."""


def run_page(run: Run, own: Sequence[str] = ()) -> str:
    """Return the page of a run, with the sections of one's ``own`` that these names stand for."""
    lead = [paragraph(sentence(run)), key_values(_key_metrics(run)), *what_travelled(run)]
    return page(title_of(run), "".join(lead), sections_of(run, own))


def title_of(run: Run) -> str:
    """Return the study's own title, or else what was trained on what, by which algorithms."""
    model = without_folders(str(run.config.get("model")))
    return str(run.config.get("title") or f"{model} on {run.dataset}: {run.algorithms}")


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
