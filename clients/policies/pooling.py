"""The base of clients that gather BatchNorm statistics for the server to pool.

Federated BatchNorm: Guerraoui et al. 2024, "Overcoming the Challenges of Batch Normalization in FL".

Hybrid BatchNorm: Chen et al. 2025, "Resolving the Dilemma of Batch Normalisation in FL".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting

from ..base import FedAvgClient
from ..modules.arrays import to_array
from ..modules.batch_norm import BatchNorm, batch_norm_modules, one_pass, pools
from ..modules.lazy_torch import nn, torch
from ..modules.moments import Moments, measured
from ..problems.evaluation import evaluation_batch
from ..training import LocalRun
from ..update import NamedArrays, Update


class PoolingClient(FedAvgClient):
    """Sends the moments of the inputs of BatchNorm layers instead of their statistics; see `moments`."""

    decides = "BatchNorm"
    requires: ClassVar[Mapping[str, set[Any]]] = {
        "protocol": {"sync"},
        "compress": {"none"},
        "compress-down": {"none"},
        "mean": {"weighted"},
    }
    gathered: Moments | None = None
    """What it gathered in this call."""

    def end_run(
        self,
        run: LocalRun,
        metrics: dict[str, float],
        entries: Mapping[str, torch.Tensor],
        config: Mapping[str, Scalar],
        copy: bool = True,
    ) -> Update:
        """Return the model with the moments in it.

        Raises
        ------
        FloatingPointError
            As `FedAvgClient.end_run`; also when a layer's inputs are not finite, although the model is.
        """
        update = super().end_run(run, metrics, entries, config, copy)
        sent = dict(zip(self.shared_names, update.arrays, strict=True))
        for name, moment in (self.gathered or {}).items():
            if name in sent:
                found = moment.to(entries[name].dtype)
                if not found.isfinite().all():
                    raise FloatingPointError(f"training diverged: {name} of what was gathered is not finite")
                sent[name] = to_array(found)
        return Update(NamedArrays(sent), *update[1:], update.records)


class FBNClient(PoolingClient):
    """Normalises everywhere by shared running statistics, which follow all clients' (arXiv 2405.14670).

    Clients train with the statistics that they received, and gather those of their batches. The server's move
    by ``fbn-momentum`` towards the mean and the variance of all of these, which has in it what lies between
    the clients. Gradients take the statistics as constants. By default a round's replace them: of steps that
    each count for 0.1, as in BatchNorm, a round of twenty leaves an eighth of what was before.
    """

    purpose = (
        "One shared model; BatchNorm normalises by the running statistics of all clients, also in training."
    )
    helps = ("feature-shift", "label-skew")
    paper = "guerraoui2024fbn"
    pooled_by = "fbn-momentum"
    also_decides = frozenset({"how many passes a step has"})

    fbn_momentum: float = setting(
        1.0, gt=0, le=1, description="share of a round's statistics in the shared running ones"
    )

    def still_in(self, server_round: int) -> frozenset[str]:
        return self.still.union(name for name, layer in batch_norm_modules(self.task.model) if pools(layer))

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        # Passes without gradient are of other models, such as MOON's previous one.
        with measured(self.task.model, counts=torch.is_grad_enabled) as moments:
            metrics = super().train(run, config)
        self.gathered = moments()
        return metrics


FACTOR = "factor"
SEED = 4  # appended to the seed of the round, for the order of the examples


class HBNClient(PoolingClient):
    """Trains on a learnt mix of the batch's and all clients' statistics (arXiv 2505.21877).

    Before it trains, a client passes once over its examples with the received model, and gathers its
    statistics; training changes none. The server pools those of all clients. The factor of the mix, one a
    channel, is learnt with the weights and stays at home. The model has the layers of norm ``hybrid``.
    """

    purpose = "One shared model; BatchNorm trains on a learnt mix of the batch's and all clients' statistics."
    helps = ("label-skew",)
    paper = "chen2025hybrid"
    norm = "hybrid"
    pooled_by = "hbn-momentum"
    requires = {**PoolingClient.requires, "norm": {"hybrid"}}  # noqa: RUF012

    hbn_momentum: float = setting(
        1.0, gt=0, le=1, description="share of a round's statistics in the shared ones; 1 takes its alone"
    )

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return frozenset(f"{name}.{FACTOR}" if name else FACTOR for name, _ in _layers(model))

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        model, task = self.task.model, self.task
        with _statistics_stay(model):
            with measured(model) as moments:
                layers = [layer for name, layer in _layers(model) if name not in self.still]
                one_pass(
                    model, layers, task.train, evaluation_batch(task.train, task.problem), (*run.seed, SEED)
                )
            self.gathered = moments()
            return super().train(run, config)


def _layers(model: nn.Module) -> Iterator[tuple[str, BatchNorm]]:
    from ..modules.layers import HybridBatchNorm  # imports PyTorch

    for name, layer in model.named_modules(remove_duplicate=False):
        if isinstance(layer, HybridBatchNorm):
            yield name, layer


@contextmanager
def _statistics_stay(model: nn.Module) -> Iterator[None]:
    """Stop the updates of running statistics; restore the layers' settings afterwards."""
    before = {layer: layer.momentum for _, layer in _layers(model)}
    for layer in before:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in before.items():
            layer.momentum = momentum
