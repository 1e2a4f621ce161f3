"""Report the given keys that nothing in a run reads.

They are not an error: the runs of a sweep may share them.
"""

from __future__ import annotations

import inspect

from fedbn_flower.clients import Metric
from fedbn_flower.clients.modules.batch_norm import batch_norm_statistics
from fedbn_flower.clients.modules.clipping import before_head
from fedbn_flower.clients.modules.frozen import constant_entries
from fedbn_flower.clients.problems.metrics.from_torchmetrics import TorchMetric
from fedbn_flower.clients.problems.metrics.scores import OfScores

from ...config.help import as_text
from ...config.keys import RUN_KEYS
from ...config.unused_keys import Caller, Unread, given_keys, told, unread, unused_by_config
from ...core.text import visible
from ...names import METRIC, models_named
from ..inputs import RunInputs, inputs_of


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


def _no_statistics(inputs: RunInputs, _: Caller) -> bool:
    names = range(len(models_named(inputs.config.model)))
    return not any(batch_norm_statistics(inputs.initial(i).module) for i in names)


def _nothing_to_replace(inputs: RunInputs, caller: Caller) -> bool:
    """Whether ``norm`` finds no layer to replace; standardised weights need none."""
    config = inputs.config
    if config.norm == RUN_KEYS["norm"].default or config.norm.partition(":")[0] not in OF_LAYERS:
        return False
    return _no_statistics(inputs_of(config.model_copy(update={"norm": RUN_KEYS["norm"].default})), caller)


OF_LAYERS = ("group", "layer", "instance", "none", "hybrid")
OF_EVALUATION = "metrics metrics-by-class thresholds target evaluate-every eval-data final-test"


UNREAD: Unread[RunInputs] = {
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
"""Further such conditions, on the data and the model of a run."""


def unused_keys(inputs: RunInputs, caller: Caller) -> dict[str, str]:
    """Return the given keys and settings that nothing reads, each with the reason."""
    config = inputs.config
    return told(config, caller, (*unused_by_config(config, caller), *unread(UNREAD, inputs, caller)))


def unused_line(inputs: RunInputs, caller: Caller) -> str:
    """Return a line that reports such keys; empty if there are none."""
    given = given_keys(inputs.config, caller)
    keys = [
        f"{key} {visible(as_text(given[key]))} ({why})" for key, why in unused_keys(inputs, caller).items()
    ]
    return f"unused: nothing in this run reads {', '.join(keys)}" if keys else ""
