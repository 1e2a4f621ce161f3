"""FedAP: Lu et al. 2022, "Personalized Federated Learning with Adaptive Batchnorm" (arXiv 2112.00734)."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting

from ...aggregation.vectors import Layout
from ...messages.npy import viewed
from ...personal_models import PersonalModels, mixed

MEAN, VARIANCE = ".running_mean", ".running_var"


class FedAP(PersonalModels):
    """Client i has ``sum_j w_ij x_j``, and BatchNorm of its own; w_ij goes by the likeness of statistics.

    ``w_ii = lambda``, and ``w_ij = (1 - lambda) (1 / d_ij) / sum_{k != i} 1 / d_ik``, where d_ij sums over
    BatchNorm layers the 2-Wasserstein distance ``sqrt(norm(mu_i - mu_j)^2 + norm(sigma_i - sigma_j)^2)`` of
    normal distributions with their statistics, as in the authors' code. x_j is what client j trained in this
    round; of a client that did not answer, its model, which stays as it is.

    Departure from the paper, which measures the statistics of the layers' inputs once, by a pretrained model
    on each client's data: here they are the running statistics that clients send with each answer.
    """

    purpose = "Gives each client a mixture weighted by the likeness of BatchNorm statistics."
    helps = ("personal-models", "feature-shift")
    paper = "lu2022fedap"

    own: float = setting(0.5, ge=0, le=1, alias="fedap-lambda", description="weight of a client's own model")

    def take(self, trained: Mapping[str, ArrayRecord], layout: Layout) -> None:
        models = {**self.rule_state.models, **trained}
        names = sorted(models)
        weights = self.weights([models[name] for name in names])
        norms = {entry for entry in models[names[0]] if entry.startswith(tuple(layers(models[names[0]])))}
        self.rule_state.models |= {
            name: ArrayRecord(
                {
                    entry: models[name][entry] if entry in norms else array
                    for entry, array in mixed(models, names, weights[names.index(name)]).items()
                }
            )
            for name in trained
        }

    def weights(self, models: Sequence[ArrayRecord]) -> NDArray[np.float64]:
        """Return w, float64 (n, n); of a single client it is 1."""
        if len(models) == 1:
            return np.ones((1, 1))
        distances = sum(_distances(models, layer) for layer in layers(models[0]))
        near = 1 / np.maximum(distances, np.finfo(np.float64).tiny ** 0.5)
        np.fill_diagonal(near, 0)
        others: NDArray[np.float64] = (1 - self.own) * near / near.sum(1, keepdims=True)
        return others + self.own * np.eye(len(models))


def layers(entries: Mapping[str, object]) -> list[str]:
    """Return how the names of the entries of each BatchNorm layer begin."""
    return [f"{name.removesuffix(MEAN)}." for name in entries if name.endswith(MEAN)]


def _distances(models: Sequence[ArrayRecord], layer: str) -> NDArray[np.float64]:
    """Return the distances of one layer's statistics, float64 (n, n)."""
    from scipy.spatial.distance import pdist, squareform

    prefix = layer.removesuffix(".")
    rows = [
        np.concatenate([viewed(m[f"{prefix}{MEAN}"]), np.sqrt(viewed(m[f"{prefix}{VARIANCE}"]))])
        for m in models
    ]
    found: NDArray[np.float64] = squareform(pdist(np.array(rows, np.float64)))
    return found
