"""MOON: Li et al. 2021, "Model-Contrastive Federated Learning" (arXiv 2103.16257)."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.arrays import to_array
from ..modules.head import features, frozen
from ..modules.lazy_torch import functional, nn, torch
from .base import LocalWork, Objective, Outcome


class Moon(Objective):
    """``f - mu log(e^{sim(z, z_x)/T} / (e^{sim(z, z_x)/T} + e^{sim(z, z_prev)/T}))`` (equation 3).

    z is the input of the head, z_x that of the received model. z_prev is that of this client's model at the
    end of its last round, with local entries; what was frozen then is that of the received model. Both models
    are in evaluation mode, so their statistics do not change. For a client without a previous model the term
    is left out: with the received model in its place, it would be constant.
    """

    purpose = "Keeps features near those of the global model: label skew in images."
    helps = ("label-skew",)
    paper = "li2021moon"

    mu: float = setting(1.0, ge=0, description="weight of the contrastive term", allow_inf_nan=False)
    temperature: float = setting(
        0.5, gt=0, alias="moon-temperature", description="T of the contrastive term", allow_inf_nan=False
    )

    of_features = True
    remembers = True
    example_wise = True

    def begin(self) -> None:
        self.x = self.client.entries()
        self.previous: dict[str, torch.Tensor] | None = None
        if self.memory is not None:
            previous = {name: torch.from_numpy(entry) for name, entry in self.memory.items()}
            self.previous = {n: previous[n].to(x) if n in previous else x for n, x in self.x.items()}

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        z, output = features(model, inputs)
        loss = self.criterion(output, targets, reduction)
        if self.previous is None:
            return loss, output
        frozen_z = [frozen(model, entries, inputs)[0] for entries in (self.x, self.previous)]
        similarities = torch.stack([functional.cosine_similarity(z, other) for other in frozen_z], 1)
        first = torch.zeros(len(z), dtype=torch.long, device=z.device)
        contrast = functional.cross_entropy(similarities / self.temperature, first, reduction=reduction)
        return loss + self.mu * contrast, output

    def finish(self, work: LocalWork) -> Outcome:
        entries = self.client.entries()
        return Outcome(memory={name: to_array(entry) for name, entry in entries.items()})
