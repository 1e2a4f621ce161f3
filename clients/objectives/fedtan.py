"""FedTAN: Wang et al. 2023, "Why Batch Normalization Damage FL on Non-IID Data?" (arXiv 2301.02983)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import BATCH_GRADIENT, BATCH_SHARES, BATCH_STATISTICS, BATCH_WEIGHT

from ..modules.batch_norm import batch_norm_modules
from ..modules.lazy_torch import nn, torch
from ..modules.moments import Call, normalised_by, trained_layers
from ..problems.evaluation import predictions_of
from ..update import Records
from .base import Objective


class FedTAN(Objective):
    """f, whose first gradient is that of BatchNorm over the first batches of all of the round's clients.

    Layer by layer the server asks for the mean and the variance of a layer's inputs, and backwards for the
    gradients of the loss F of all batches by them; see strategy ``fedtan``. With m and q the mean of a
    client's inputs and of their squared distances from the common mean, and F's gradients a by the mean and b
    by the variance, the gradient of ``f + sum_l (a_l m_l + b_l q_l)`` at constant statistics has F's as its
    mean over clients. A batch counts as many times as it has examples, whatever it is of its client's
    examples. The steps after the first are BatchNorm's own, of one batch.
    """

    purpose = "The clients' half of FedTAN: a first step by BatchNorm over the batches of all clients."
    helps = ("label-skew", "feature-shift")
    paper = "wang2023fedtan"

    requires: ClassVar = {
        "strategy": {"fedtan"},
        "client": {"shared"},
        "client-optimizer": {"sgd"},
        "clip-norm": {0.0},
        "agc": {0.0},
    }

    weighting: Literal["num-examples", "uniform"] = setting(
        "num-examples", description="weights of the clients' models"
    )

    @classmethod
    def misfit(cls, model: nn.Module) -> str:
        layers = trained_layers(model)
        if not layers:
            return "it has no BatchNorm layer that trains"
        usual = nn.modules.batchnorm._BatchNorm
        for name, layer in batch_norm_modules(model):
            if layer.training and isinstance(layer, usual):
                if layer.running_mean is None:
                    return f"its BatchNorm {name!r} keeps no running statistics"
                if type(layer).forward is not usual.forward and not isinstance(layer, nn.SyncBatchNorm):
                    return f"its layer {name!r}, {type(layer).__name__}, is no plain BatchNorm"
        return ""

    def begin(self) -> None:
        self.is_first = True
        self.known = self.received.get(BATCH_STATISTICS, {})
        """What the server knows so far: of a layer's inputs over all batches, and gradients by that."""

    def first_answer(self) -> Records:
        model = self.client.model
        with self.first_batch() as (inputs, targets), normalised_by(model, self.given(model)) as calls:
            loss = self.criterion(model(inputs), targets)
        shares = self.shares(inputs, targets)
        found = {BATCH_SHARES: shares}
        for call in calls:
            for name, own in call.own.items():
                if name not in self.known:
                    return {BATCH_STATISTICS: found | {name: shares[0] * own.numpy(force=True)}}
        for call in reversed(calls):
            if not all(name + BATCH_GRADIENT in self.known for name in call.own):
                of_all = self.with_statistics(loss, calls, shares)
                gradients = torch.autograd.grad(
                    of_all, list(call.used.values()), allow_unused=True, materialize_grads=True
                )
                for name, gradient in zip(call.used, gradients, strict=True):
                    found[name + BATCH_GRADIENT] = gradient.numpy(force=True)
                break
        return {BATCH_STATISTICS: found}

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_first:
            return super().loss(model, inputs, targets, reduction)
        self.is_first = False
        if not self.known:
            raise ValueError(f"FedTAN needs the record {BATCH_STATISTICS!r}, which was not received")
        shares = self.shares(inputs, targets)
        examples = float(self.known[BATCH_SHARES][0] * self.known[BATCH_WEIGHT][0])
        with normalised_by(model, self.given(model), examples / len(inputs)) as calls:
            loss, output = super().loss(model, inputs, targets, reduction)
        of_all = self.with_statistics(loss, calls, shares)
        return loss.detach() + (of_all - of_all.detach()), output

    def given(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Return the arrays of layers known so far, on the model's device."""
        device = next(model.parameters()).device
        of_layers = self.known.keys() - {BATCH_SHARES, BATCH_WEIGHT}
        return {name: torch.from_numpy(self.known[name]).to(device) for name in of_layers}

    def shares(self, inputs: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float64]:
        """Return a batch's numbers of examples and predictions, over the weight of the client's model."""
        counts = len(inputs), float(predictions_of(self.problem, targets).sum())
        return np.array(counts) / (len(self.client.examples) if self.weighting == "num-examples" else 1)

    def with_statistics(
        self, loss: torch.Tensor, calls: Sequence[Call], shares: NDArray[np.float64]
    ) -> torch.Tensor:
        """Return ``c f + sum_l c' (a_l m_l + b_l q_l)``, for which the mean over clients is F.

        c and c' are this batch's parts of all predictions and examples, over the client's weight in the mean.
        """
        examples, predictions = (shares / self.known[BATCH_SHARES]).tolist()
        total: torch.Tensor = predictions * loss
        for call in calls:
            for name, own in call.own.items():
                if (gradient := self.known.get(name + BATCH_GRADIENT)) is not None:
                    total = total + examples * (torch.from_numpy(gradient).to(own) @ own)
        return total
