"""Report the given keys that nothing in a run reads.

They are not an error: the runs of a sweep may share them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flwr.app import UserConfigValue

from fedbn_flower.clients import Metric
from fedbn_flower.clients.modules.batch_norm import batch_norm_statistics
from fedbn_flower.clients.modules.clipping import before_head
from fedbn_flower.clients.modules.frozen import constant_entries
from fedbn_flower.clients.modules.optimizers import unused_keys as unused_by_optimizer
from fedbn_flower.clients.problems.metrics.from_torchmetrics import TorchMetric
from fedbn_flower.clients.problems.metrics.scores import OfScores

from ...config.data_request import implied_by_splits, usual_clients
from ...config.help import as_text
from ...config.keys import RUN_KEYS
from ...config.named_algorithms import NOT_GIVEN, named, objective_of, settings_of
from ...config.run_config import RunConfig
from ...core.text import visible
from ...models.named import models_named
from ...names import CLIENT, METRIC, OBJECTIVE, SELECTION
from ..inputs import RunInputs, inputs_of


class Caller(NamedTuple):
    """Who runs a federation, and so reads keys itself."""

    simulates: bool = True
    """Whether clients are simulated; otherwise they are Flower's nodes."""
    searches: bool = False
    """Whether it is a trial of a search."""


SIMULATION, SEARCH, FLOWER = Caller(), Caller(searches=True), Caller(simulates=False)
Condition = Callable[[RunInputs, Caller], bool]
"""Whether nothing in a run of these inputs reads a key."""


def runs_here(inputs: RunInputs, caller: Caller) -> bool:
    """Whether all clients are simulated in this process; see `runtime.pools.pool_for`."""
    config = inputs.config
    moves = config.backend == "auto" and (config.ray_address or config.device == "cpu")
    return caller.simulates and not (config.backend == "ray" or moves)


def _needs_no_workers(inputs: RunInputs, caller: Caller) -> bool:
    """Whether no workers are needed, not even for concurrent runs of a sweep; see `sweeps.processes`."""
    config = inputs.config
    return runs_here(inputs, caller) and (config.backend == "inline" or config.device == "cpu")


def _chooses_nobody(inputs: RunInputs, _: Caller) -> bool:
    """Whether a built-in selection always selects all clients, and does not affect ``weighting``."""
    config = inputs.config
    all_train = config.clients_a_round == config.num_training
    return (
        all_train and config.weighting != "uniform" and config.selection.partition(":")[0] in SELECTION.names
    )


def _evaluates_trained_models(inputs: RunInputs, _: Caller) -> bool:
    """Whether clients evaluate after training; then ``fraction-evaluate`` has an effect only if it is 0."""
    config = inputs.config
    return config.eval_model == "local" and config.fraction_evaluate > 0


def _fixes_nothing(inputs: RunInputs, _: Caller) -> bool:
    config = inputs.config
    return int(dict(config.algorithm_settings).get("fix-from") or 0) > config.rounds


def _zero(setting: str) -> Condition:
    return lambda i, _: dict(i.config.algorithm_settings).get(setting) == 0


def _lacks(key: str) -> Condition:
    return lambda i, _: key in unused_by_optimizer(i.config.client_optimizer)


def _nothing_is_evaluated(inputs: RunInputs, _: Caller) -> bool:
    config = inputs.config
    new_clients = config.holdout_clients and config.clients_report
    return not (config.clients_evaluate or inputs.server_evaluates or new_clients)


def _no_client_evaluates(inputs: RunInputs, _: Caller) -> bool:
    config = inputs.config
    return not (config.clients_evaluate or (config.holdout_clients and config.clients_report))


def _server_alone_evaluates_locally(inputs: RunInputs, caller: Caller) -> bool:
    """Whether ``local`` has no effect: no client evaluates, and the server uses the whole held-out set."""
    return inputs.config.eval_data == "local" and _no_client_evaluates(inputs, caller)


def _goes_by_thresholds(metric: Metric) -> bool:
    if isinstance(metric, TorchMetric):
        return "thresholds" in inspect.signature(type(metric.metric)).parameters
    return isinstance(metric, OfScores) or type(metric) not in METRIC.names.values()


def _no_thresholds(inputs: RunInputs, _: Caller) -> bool:
    return not any(map(_goes_by_thresholds, inputs.dataset.problem.chosen.values()))


def _no_frozen_statistics(inputs: RunInputs, _: Caller) -> bool:
    """Whether no BatchNorm layer is frozen, so that it does not matter if frozen statistics adapt."""
    initial = inputs.initial()
    return constant_entries(initial.module, initial.constant) == initial.constant


def has_statistics(inputs: RunInputs) -> bool:
    """Whether a model of the run has BatchNorm statistics."""
    names = range(len(models_named(inputs.config.model)))
    return any(batch_norm_statistics(inputs.initial(i).module) for i in names)


def _no_statistics(inputs: RunInputs, _: Caller) -> bool:
    return not has_statistics(inputs)


def _nothing_to_replace(inputs: RunInputs, caller: Caller) -> bool:
    """Whether ``norm`` finds no layer to replace; standardised weights need none."""
    config = inputs.config
    if config.norm == RUN_KEYS["norm"].default or config.norm.partition(":")[0] not in OF_LAYERS:
        return False
    return _no_statistics(inputs_of(config.model_copy(update={"norm": RUN_KEYS["norm"].default})), caller)


OF_LAYERS = ("group", "layer", "instance", "none", "hybrid")
OF_EVALUATION = "metrics metrics-by-class thresholds target evaluate-every eval-data final-test"


UNREAD: Mapping[tuple[str, str], Condition] = {
    ("workers", "clients run in this process"): _needs_no_workers,
    ("round-timeout", "clients run in this process"): runs_here,
    ("ray-address", "backend is 'inline'"): lambda i, by: by.simulates and i.config.backend == "inline",
    ("node-timeout", "simulated clients are there at once"): lambda _, by: by.simulates,
    ("evaluate-with-training", "simulated clients are asked at no cost"): lambda _, by: by.simulates,
    ("memory-name keep-memories", "only SuperNodes keep memories"): lambda _, by: by.simulates,
    ("backend workers ray-address verbose", "Flower runs the clients"): lambda _, by: not by.simulates,
    (
        "subgroups",
        "cases stay at the nodes, and so do sums of few of them; a node's own predictions have the column",
    ): lambda _, by: not by.simulates,
    ("fast", "Flower runs the clients"): lambda i, by: (
        not by.simulates and i.config.reference != "pooled"
    ),  # a search sets it itself
    ("client-momentum", "client-optimizer {client_optimizer!r} has none"): _lacks("client-momentum"),
    ("weight-decay", "client-optimizer {client_optimizer!r} has none"): _lacks("weight-decay"),
    ("drop-stragglers", "stragglers is 0"): lambda i, _: not i.config.stragglers,
    ("selection", "all clients train"): _chooses_nobody,
    ("fraction-evaluate", "clients send no metrics"): lambda i, _: (
        i.config.fraction_evaluate > i.config.share_evaluating
    ),
    ("fraction-evaluate", "eval-model is 'local'"): _evaluates_trained_models,
    ("dp-metrics", "fraction-evaluate is 0"): lambda i, _: not i.config.clients_evaluate,
    (
        "evaluate-with-training",
        "no client evaluates the model that it receives",
    ): lambda i, _: i.config.eval_model == "local" or not i.config.clients_evaluate,
    (
        "decide-by",
        "without patience, best, stop-at-target and a search it decides nothing",
    ): lambda i, by: not (i.config.tests_each_round or by.searches),
    ("fix-from", "rounds is {rounds}"): _fixes_nothing,
    ("moon-temperature", "mu is 0"): _zero("mu"),
    ("ntd-temperature", "ntd-beta is 0"): _zero("ntd-beta"),
    (OF_EVALUATION, "nothing is evaluated"): _nothing_is_evaluated,
    ("fine-tune adapt-bn", "no client evaluates"): _no_client_evaluates,
    ("adapt-bn bn-momentum", "the model has no BatchNorm"): _no_statistics,
    ("fix-from fbn-momentum hbn-momentum", "the model has no BatchNorm"): _no_statistics,
    ("norm", "the model has no BatchNorm"): _nothing_to_replace,
    ("agc", "the model is a head alone"): lambda i, _: not before_head(i.initial().module),
    ("predictions subgroups", "no client that trains evaluates"): lambda i, _: not i.config.clients_evaluate,
    ("eval-data", "no client evaluates"): _server_alone_evaluates_locally,
    ("thresholds", "no metric goes by thresholds"): _no_thresholds,
    ("surface-tolerance", "no masks are learnt"): lambda i, _: not i.dataset.problem.case_metrics,
    ("frozen-bn", "no BatchNorm layer is frozen"): _no_frozen_statistics,
    ("dp-scale", "the data are no table"): lambda i, _: i.dataset.has_examples and not i.prepares_publicly,
    (
        "compress error-feedback compress-down server-lr server-momentum clip-update-norm",
        "nothing of the model travels",
    ): lambda i, _: not i.split.shared,
    ("partition cache-dir eval-data", "the data are the SuperNodes'"): lambda i, _: (
        not i.dataset.has_examples
    ),
    (
        "memory-name keep-memories continue-state",
        "no client remembers anything",
    ): lambda i, caller: not (caller.simulates or i.remembers),
}
"""Conditions under which nothing reads a key and no error says so (most keys that need another one are
refused without it), by key names, separated by blanks, and by the reason, with the run's keys in braces.
"""

SET_ON_RESUME = frozenset({"decide-by", "eval-data", "frozen-bn"})
"""Keys that a resumed run or search may take from its folder without being given."""


def given_keys(config: RunConfig, caller: Caller) -> dict[str, UserConfigValue]:
    """Return the keys and settings of a run that are not their defaults, with their values."""
    values = config.to_user_config()
    algorithms = named(values)
    settings = {key: field for one in algorithms for key, field in settings_of(one.cls).items()}
    defaults = {key: field.default for key, field in {**settings, **RUN_KEYS}.items()}
    defaults = {key: NOT_GIVEN if value is None else value for key, value in defaults.items()}
    defaults |= {**config.usual_choices, **implied_by_splits(config)}
    defaults |= {"num-clients": usual_clients(config), OBJECTIVE.key: objective_of(algorithms[0].cls)}
    if norm := CLIENT.find(config.client).norm:
        defaults["norm"] = norm
    resumed = SET_ON_RESUME if config.resume or caller.searches else frozenset()
    return {key: v for key, v in values.items() if v != defaults.get(key) and key not in resumed}


def unused_keys(inputs: RunInputs, caller: Caller) -> dict[str, str]:
    """Return the given keys and settings that nothing reads, each with the first reason that holds."""
    given, values = given_keys(inputs.config, caller), inputs.config.model_dump()
    why: dict[str, str] = {}
    for (keys, words), holds in UNREAD.items():
        asked = [key for key in keys.split() if key in given and key not in why]
        if asked and holds(inputs, caller):
            why |= dict.fromkeys(asked, words.format(**values))
    return {key: why[key] for key in given if key in why}


def unused_line(inputs: RunInputs, caller: Caller) -> str:
    """Return a line that reports such keys; empty if there are none."""
    given = given_keys(inputs.config, caller)
    keys = [
        f"{key} {visible(as_text(given[key]))} ({why})" for key, why in unused_keys(inputs, caller).items()
    ]
    return f"unused: nothing in this run reads {', '.join(keys)}" if keys else ""
