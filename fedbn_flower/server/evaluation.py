"""Evaluate the global model: on the server's examples, and on clients that never train."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedbn_flower.clients import load_entries
from fedbn_flower.clients.modules.lazy_torch import nn
from fedbn_flower.clients.problems.evaluation import (
    NOTHING_KEPT,
    Predictions,
    Sums,
    evaluate_share,
    metrics_of_splits,
)
from fedbn_flower.clients.problems.segmentation import SCORES, TARGETS
from fedbn_flower.strategies import PhaseReport

from ..core.bits import comparable
from ..job.held_out import whole_split
from ..job.inputs import RunInputs
from ..records.cases import exact_metrics
from ..records.events import prefix_of
from .refusals import first_to_diverge

NONE: Mapping[str, NDArray] = MappingProxyType({})


@runtime_checkable
class EvaluatesInShares(Protocol):
    """A Grid whose processes can evaluate the global model together."""

    def evaluate_in_shares(
        self, arrays: ArrayRecord, splits: str, classes: int
    ) -> Mapping[str, list[Sums]] | None:
        """Return the sums of every batch of each split, in order; None if this process has to evaluate."""


class GlobalEvaluation:
    """Evaluates the global model on the server's examples, if the server has any.

    Parameters
    ----------
    inputs : RunInputs
        The run's.
    model : nn.Module
        A model to load the shared entries into.
    """

    def __init__(self, inputs: RunInputs, model: nn.Module) -> None:
        self.inputs = inputs
        self.model = model
        self._shares_agree: bool | None = None

    def evaluate(
        self,
        arrays: ArrayRecord,
        splits: str,
        classes: int = 0,
        report: PhaseReport | None = None,
        grid: Grid | None = None,
    ) -> tuple[dict[str, Any] | None, str]:
        """Return the model's metrics, and who found that it is no longer finite, if anybody did.

        Parameters
        ----------
        arrays : ArrayRecord
            The model's shared entries.
        splits : str
            Held-out splits, separated by commas; if empty, nothing is evaluated.
        classes : int
            Number of classes that get metrics of their own; 0 for none.
        report : PhaseReport, optional
            What the clients found. Without server-side evaluation, it decides whether the model is still
            finite. If it has predictions of single cases, the server's metrics are computed from single
            cases, too.
        grid : Grid, optional
            Its processes evaluate, if they can, and if their result equals that of this process.

        Returns
        -------
        tuple
            The metrics, or None if the server cannot evaluate; and who found a model that is not finite, or
            "".
        """
        inputs = self.inputs
        if not splits:
            return None, ""
        if not inputs.server_evaluates:
            of_received = inputs.config.eval_model != "local"
            at_least = min(2, inputs.config.num_training)
            return None, first_to_diverge(report, at_least) if report and of_received else ""
        exactly = bool(report and report.pooled)
        kept: dict[str, list[Predictions]] = {splits.rsplit(",", maxsplit=1)[-1]: []} if exactly else {}
        found = None if exactly else self._in_shares(grid, arrays, splits, classes)
        load_model(self.model, arrays, inputs.constant)
        if not (found and self._shares_agree):
            whole = evaluated_share(inputs, self.model, splits, classes, kept=kept)
            if found:  # a stateful or random model may give other results in shares
                self._shares_agree = comparable(found) == comparable(whole)
            found = whole
        problem = inputs.dataset.problem
        try:
            metrics = metrics_of_splits(found, self.model, problem)
            for parts in kept.values():
                scores, targets = (np.concatenate([p[name] for p in parts]) for name in (SCORES, TARGETS))
                metrics |= exact_metrics(problem, scores, targets, prefix_of(splits))
            return metrics, ""
        except FloatingPointError as error:
            return None, f"server: {error}"

    def _in_shares(
        self, grid: Grid | None, arrays: ArrayRecord, splits: str, classes: int
    ) -> Mapping[str, list[Sums]] | None:
        if self._shares_agree is False or not isinstance(grid, EvaluatesInShares):
            return None
        return grid.evaluate_in_shares(arrays, splits, classes)


def load_model(model: nn.Module, arrays: ArrayRecord, constant: Mapping[str, NDArray] = NONE) -> None:
    """Load the shared entries and those that never change into a model, in place."""
    shared = {name: array.numpy() for name, array in arrays.items()}
    load_entries(model.state_dict(), {**constant, **shared})


def evaluated_share(
    inputs: RunInputs,
    model: nn.Module,
    splits: str,
    classes: int,
    share: tuple[int, int] = (0, 1),
    kept: Mapping[str, list[Predictions]] = NOTHING_KEPT,
) -> dict[str, list[Sums]]:
    """Return the sums of a share of each split's batches, of the server's examples."""
    held_out = {split: whole_split(inputs, split) for split in splits.split(",")}
    return evaluate_share(model, held_out, splits, inputs.dataset.problem, classes, share, kept)
