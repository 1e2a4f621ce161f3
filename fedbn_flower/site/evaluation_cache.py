"""Cache evaluations that are identical for all clients of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.app import ArrayRecord, RecordDict

from fedbn_flower.clients import FedAvgClient
from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.bits import comparable
from ..core.ground.settings import overridden
from ..core.ground.wire import ADAPT_BN, CONFIG, EVAL_SPLITS, FINE_TUNE, TRAIN_EXAMPLES
from .cohorts import Evaluated


class Evaluations:
    """The last evaluation, reused for clients whose evaluation would be identical: same message content, same
    example objects, no local model entries, the methods of `FedAvgClient`, and no training or adaptation.

    A user's model may be random or stateful in ways that PyTorch does not show. So the second client
    evaluates, too, once for each model; if its result is not exactly the same, nothing is reused.
    """

    def __init__(self) -> None:
        self._content: object = None
        self._task: tuple[Any, ...] = ()
        self._found: Evaluated = 0.0, 0, {}
        self._model: nn.Module | None = None
        self._finds_the_same: bool | None = None

    def find(self, client: FedAvgClient, content: RecordDict, evaluate: Callable[[], Evaluated]) -> Evaluated:
        """Return the cached result, or that of ``evaluate()``."""
        config = content.config_records[CONFIG]
        if not _evaluates_as_all_do(client) or config.get(FINE_TUNE) or config.get(ADAPT_BN):
            return evaluate()
        task, received = client.task, _copied(content)
        on = (task.model, task.problem, *map(task.evaluation.get, str(config[EVAL_SPLITS]).split(",")))
        again = on == self._task and received == self._content
        if not (again and self._finds_the_same):
            loss, num_examples, metrics = evaluate()
            found = loss, num_examples, {k: v for k, v in metrics.items() if k != TRAIN_EXAMPLES}
            if task.model is not self._model:
                self._model, self._finds_the_same = task.model, None
            elif again and self._finds_the_same is None:
                self._finds_the_same = comparable(found) == comparable(self._found)
            self._content, self._task, self._found = received, on, found
        loss, num_examples, metrics = self._found
        return loss, num_examples, {**metrics, TRAIN_EXAMPLES: len(task.train)}


def _evaluates_as_all_do(client: FedAvgClient) -> bool:
    """Whether the client evaluates the received model unchanged, with the methods of `FedAvgClient`."""
    of_server = len(client.shared_names) + len(client.constant_names)
    return of_server == len(client.task.initial) and evaluates_its_entries(client)


def evaluates_its_entries(client: FedAvgClient) -> bool:
    """Whether the client evaluates received and local entries unchanged, with those methods."""
    if client.personal_group:
        return False
    methods = {"evaluate", "held_out_metrics", "load", "load_to_evaluate", "personalise", "predictor"}
    return vars(client).keys().isdisjoint(methods) and not overridden(type(client), FedAvgClient, methods)


def _copied(content: RecordDict) -> dict[str, dict[str, Any]]:
    """Copy records that can be changed in place; arrays need no copy, being immutable bytes."""
    return {
        name: {key: (a.dtype, a.shape, a.stype, a.data) for key, a in record.items()}
        if isinstance(record, ArrayRecord)
        else {key: tuple(v) if isinstance(v, list) else v for key, v in record.items()}
        for name, record in content.items()
    }
