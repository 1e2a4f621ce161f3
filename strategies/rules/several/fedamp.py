"""FedAMP: Huang et al. 2021, "Personalized Cross-Silo Federated Learning on Non-IID Data" (2007.03797)."""

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, MessageType
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting

from ...aggregation.vectors import Layout
from ...personal_models import PersonalModels, mixed, squared_distances

MIXTURE = "mixture"
"""The matrix xi in the rule's state, its rows and columns by the models' names in order."""


class FedAMP(PersonalModels):
    """Client i is sent ``u_i = xi_ii w_i + sum_{j != i} xi_ij w_j``, ``xi_ij = alpha A'(norm(w_i - w_j)^2)``.

    w_j is what client j has trained last, and ``A(x) = 1 - e^(-x / sigma)``, so that alike models attract
    each other; ``xi_ii = 1 - sum_{j != i} xi_ij``. The client minimises
    ``f(w) + lambda / (2 alpha) norm(w - u_i)^2``: it needs the objective ``fedprox``, whose ``mu`` is lambda
    over alpha. It evaluates its w_i. Norms are over the stepped parameters; statistics are mixed alike.

    The paper takes alpha so small that xi_ii >= 0. Here the others' weights are scaled down to a sum of 1
    where they are above it. Clients begin at the u_i that they receive, on which the minimum does not depend.
    """

    purpose = "Gives each client a mixture of the models that are like its own (with objective fedprox)."
    helps = ("personal-models",)
    paper = "huang2021fedamp"

    requires = {**PersonalModels.requires, "objective": {"fedprox"}}  # noqa: RUF012

    alpha: float = setting(1.0, gt=0, alias="fedamp-alpha", description="step size of the attraction")
    sigma: float = setting(
        1.0, gt=0, alias="fedamp-sigma", description="squared distance at which models attract less by e"
    )

    def take(self, trained: Mapping[str, ArrayRecord], layout: Layout) -> None:
        state = self.rule_state
        state.models.update(trained)
        state.vectors[MIXTURE] = self.mixture(squared_distances(state.models, sorted(state.models), layout))

    def records_of(self, group: str, main: ArrayRecord, phase: str) -> dict[str, ArrayRecord]:
        models = self.rule_state.models
        if phase != MessageType.TRAIN or group not in models:
            return super().records_of(group, main, phase)
        names = sorted(models)
        row = self.rule_state.vectors[MIXTURE][names.index(group)]
        return {self.arrayrecord_key: mixed(models, names, row)}

    def mixture(self, squared: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return xi, float64 (n, n), from the models' squared distances."""
        others = self.alpha / self.sigma * np.exp(-squared / self.sigma)
        np.fill_diagonal(others, 0)
        others /= np.maximum(1, others.sum(1, keepdims=True))
        return others + np.diag(np.maximum(0, 1 - others.sum(1)))
