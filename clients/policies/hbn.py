"""Hybrid BatchNorm: Chen et al. 2025, "Resolving the Dilemma of Batch Normalisation in FL"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting

from ..modules.batch_norm import BatchNorm, one_pass
from ..modules.lazy_torch import nn
from ..modules.moments import measured
from ..problems.evaluation import evaluation_batch
from ..training import LocalRun
from .pooling import PoolingClient

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
    from ..modules.hybrid_norm import HybridBatchNorm  # imports PyTorch

    for name, layer in model.named_modules(remove_duplicate=False):
        if isinstance(layer, HybridBatchNorm):
            yield name, layer


@contextmanager
def _statistics_stay(model: nn.Module) -> Iterator[None]:
    """Have no running statistics follow batches; restore what layers did before."""
    before = {layer: layer.momentum for _, layer in _layers(model)}
    for layer in before:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in before.items():
            layer.momentum = momentum
