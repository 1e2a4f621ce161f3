"""What an app's strategies come to: Flower's Results and Histories, as a table and as arrays."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import numpy as np
from flwr.common import Parameters, parameters_to_ndarrays
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from ..core.private import (
    History,
    LegacyContext,
    Server,
    ServerConfig,
    instances_made,
    legacy_fits,
    legacy_parameters,
    replaced,
)
from .rounds import Rounds

TRAIN, EVALUATE, SERVER, LOSS = "train-", "evaluate-", "server-", "loss"
START = "start"
"""The column that numbers several strategies which ran in turn."""


class Results:
    """Collects what is made while an app runs: a strategy fills its Result round by round."""

    def __init__(self, rounds: Rounds) -> None:
        self.found: list[Result | History] = []
        self._legacy: list[Server | LegacyContext] = []
        self._rounds = rounds

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Collect Results, Histories and numbers of rounds within."""
        with ExitStack() as stack:
            stack.enter_context(instances_made((Result, History), self.found.append))
            stack.enter_context(instances_made((Server, LegacyContext), self._legacy.append))
            stack.enter_context(legacy_fits(self._legacy.append))
            stack.enter_context(instances_made((ServerConfig,), self._legacy_rounds))
            stack.enter_context(replaced(Strategy, "start", self._noting_rounds(Strategy.start)))
            yield

    def _legacy_rounds(self, config: ServerConfig) -> None:
        self._rounds.last = config.num_rounds

    def _noting_rounds(self, start: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(start)

        @wraps(start)
        def noting(*args: Any, **kwargs: Any) -> Result:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            self._rounds.begin(given.arguments["num_rounds"])
            return start(*args, **kwargs)

        return noting

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each round, of each strategy that ran; those of several are numbered."""
        tables = [table for table in map(_by_round, self.found) if table]
        return [
            {**({START: number} if len(tables) > 1 else {}), "round": server_round, **table[server_round]}
            for number, table in enumerate(tables, start=1)
            for server_round in sorted(table)
        ]

    def latest(self, side: str) -> dict[str, float]:
        """Return the numbers of the last round of the last strategy in which a side was measured."""
        for row in reversed(self.rows()):
            found = {name.removeprefix(side): row[name] for name in row if name.startswith(side)}
            if numbers := {name: float(value) for name, value in found.items() if is_number(value)}:
                return numbers
        return {}

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of the last strategy that gave some; those of legacy ones are numbered."""
        for found in reversed(self.found):
            if isinstance(found, Result) and found.arrays:
                return {name: array.numpy() for name, array in found.arrays.items()}
        for parameters in map(legacy_parameters, reversed(self._legacy)):
            if parameters.tensors:
                return _legacy_arrays(parameters)
        return {}


def is_number(cell: object) -> bool:
    """Return whether a cell of the table of rounds is a number, as a value or in the file."""
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _legacy_arrays(parameters: Parameters) -> dict[str, NDArray]:
    """Return a legacy server's parameters; what is no NumPy array, as bytes."""
    try:
        arrays = parameters_to_ndarrays(parameters)
    except ValueError:
        arrays = [np.frombuffer(tensor, np.uint8) for tensor in parameters.tensors]
    return {str(i): array for i, array in enumerate(arrays)}


def _by_round(found: Result | History) -> dict[int, dict[str, Any]]:
    """Return the metrics of each round by column."""
    table: dict[int, dict[str, Any]] = {}
    for server_round, name, value in _entries(found):
        cell = json.dumps(value, default=str) if isinstance(value, list | dict) else value
        table.setdefault(server_round, {})[name] = cell
    return table


def _entries(found: Result | History) -> Iterator[tuple[int, str, Any]]:
    if isinstance(found, Result):
        for prefix, records in (
            (TRAIN, found.train_metrics_clientapp),
            (EVALUATE, found.evaluate_metrics_clientapp),
            (SERVER, found.evaluate_metrics_serverapp),
        ):
            for server_round, record in records.items():
                yield from ((server_round, prefix + name, value) for name, value in record.items())
        return
    for prefix, losses in ((EVALUATE, found.losses_distributed), (SERVER, found.losses_centralized)):
        yield from ((server_round, prefix + LOSS, loss) for server_round, loss in losses)
    metrics: Mapping[str, Mapping[str, list[tuple[int, Any]]]] = {
        TRAIN: found.metrics_distributed_fit,
        EVALUATE: found.metrics_distributed,
        SERVER: found.metrics_centralized,
    }
    for prefix, by_name in metrics.items():
        for name, values in by_name.items():
            yield from ((server_round, prefix + name, value) for server_round, value in values)
