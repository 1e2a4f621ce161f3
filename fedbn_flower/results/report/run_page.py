"""The page of one run."""

from collections.abc import Sequence
from pathlib import Path

from ...core.ground.columns import SECONDS, SIMULATED_SECONDS
from ...core.text import joined, number_of
from ...names import short
from ...privacy.in_words import not_held
from ...records.cases import TARGET
from ...records.metrics import decimals, shown, spelt
from ..held_out import CASES
from ..rare_event import (
    AUROC,
    CALIBRATION,
    LEADING,
    SENSITIVITY,
    figures,
    is_led,
    led_by_rare_event,
    main_first,
    rare_cases,
)
from ..run_reader import Run
from ..summary import name_of_left_out
from .html import key_values, page, paragraph, without_folders
from .sections.client_tables import MODELS
from .sections.closing import size
from .sections.results import how_chosen
from .sections_of_a_run import sections_of

ENDINGS = {
    "patience": "the validation metric stopped improving",
    "target": "the target was reached",
    "budget": "the privacy budget was spent",
}
"""Why a run may end before its last round."""
WHOLE = ("pooled", "mean", "aggregated", "client-mean", "global")
"""Whose metric stands for the run: the first that there is, as where runs are compared."""
PLAIN = ("fedavg", "plain")
"""A client and an objective that a title need not name."""


def run_page(run: Run, own: Sequence[str] = ()) -> str:
    """Return the page of a run, with the sections of one's ``own`` that these names stand for."""
    lead = [paragraph(sentence(run)), key_values(_key_metrics(run))]
    return page(title_of(run), "".join(lead), sections_of(run, own))


def title_of(run: Run) -> str:
    """Return the study's own title, or else who trained what on what, by which algorithms."""
    if run.told:
        return run.told.title
    strategy, *further = (short(str(run.config.get(k))) for k in ("strategy", "client", "objective"))
    named = joined([strategy, *(name for name in further if name not in PLAIN)], "and")
    model = short(without_folders(str(run.config.get("model"))).rpartition(".py:")[2])
    who = _who_trained(run)
    data = Path(run.dataset).name if Path(run.dataset).suffix else run.dataset
    return str(run.config.get("title") or f"{model} trained on {data} by {who} with {named}")


def _who_trained(run: Run) -> str:
    """Return how many clients trained, and of how many if not all did."""
    count, new = run.config.get("num-clients", 0), run.config.get("holdout-clients")
    return f"{count - new} of {number_of(count, 'client')}" if new else number_of(count, "client")


def sentence(run: Run) -> str:
    """Describe the run in plain English."""
    if run.told:
        return run.told.sentence
    config, summary = run.config, run.summary
    model, strategy, client, objective = (
        without_folders(str(config.get(key))) for key in ("model", "strategy", "client", "objective")
    )
    clients = f"{_who_trained(run)} trained {model} on {run.dataset}"
    budget = f"{number_of(config.get('local-epochs', 0), 'local epoch')} per round"
    sentences = [
        f"{clients} (partition {config.get('partition')}), {budget}, with server rule "
        f"{strategy}, client {client} and objective {objective}; seed {config.get('seed')}."
    ]
    done, requested = summary.rounds, config.get("rounds")
    if not done:
        sentences.append("The run stopped before it wrote a summary.")
    else:
        took = f"{number_of(done, 'round')} took {summary.seconds:.1f} s"
        rest = f"; {requested} were requested" if done != requested else ""
        when = f" on {date}" if (date := config.get("date")) else ""
        sentences.append(f"The {took}{when}{rest}.")
    if (reason := summary.stopped) and done != requested:
        sentences.append(f"The run ended early: {ENDINGS.get(reason, reason)}.")
    if summary.left_out:
        sentences.append(f"{name_of_left_out(summary)} was left out, and tested on at the end.")
    if chosen := how_chosen(run):
        sentences.append(chosen)
    return " ".join(sentences)


def _key_metrics(run: Run) -> dict[str, str]:
    """Return the three values that matter most, by name: of all, of the worst client, and the cost."""
    summary, metric = run.summary, run.main_metric
    by_group = summary.by_group
    digits = decimals(metric, (figures.get(metric) for figures in by_group.values()))
    known = [key for key in WHOLE if by_group.get(key, {}).get(metric) is not None][:1]
    values = {
        f"{spelt(metric)}, {MODELS[key]}": shown(metric, by_group[key][metric], digits)
        for key in (*known, "worst-client")
        if by_group.get(key, {}).get(metric) is not None
    }
    took = {f"for {number_of(summary.rounds, 'round')}": f"{summary.seconds:.1f} s"} if summary.rounds else {}
    if found := summary.privacy:
        held = f", {found['claim']}" if not_held(found) else ""
        took = {f"epsilon{held} (delta {found['delta']:g})": f"{found['epsilon']:.3f}"}
    return _of_left_out(run, digits) | (_of_rare_event(run) or values | took) | _to_target(run)


def _of_left_out(run: Run, digits: int) -> dict[str, str]:
    """Return the main metric of the site left out, after those of a rare event; empty of other runs."""
    summary, metric = led_by_rare_event(run).summary, run.main_metric
    if not (new := summary.left_out):
        return {}
    of_new = {**next(iter(new.clients.values()), {}), **(new.mean or {})}
    known = [name for name in LEADING if is_led(summary) and of_new.get(name) is not None]
    return {
        f"{spelt(name)}, {name_of_left_out(summary)}, left out": shown(
            name, of_new.get(name), digits if name == metric else 3
        )
        for name in main_first(summary, metric, dict.fromkeys([metric, *known]))
    }


def _of_rare_event(run: Run) -> dict[str, str]:
    """Return what is said of a rare event, by name; empty of other runs, and where cases are not kept."""
    cases = rare_cases(run)
    if cases is None:
        return {}
    found = figures(cases)
    return {
        spelt(AUROC): f"{found[AUROC]:.3f}",
        spelt(SENSITIVITY): f"{found[SENSITIVITY]:.3f}",
        f"{spelt(CALIBRATION)} (1 if calibrated)": f"{found[CALIBRATION]:.2f}",
        f"events ({run.event}) of {len(cases):,} {CASES}": f"{(cases[TARGET] == 1).sum():,}",
    }


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
