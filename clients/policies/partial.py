"""Clients that keep a part of the model local, or train one part at a time.

A client that shares nothing of its model.
FedBN: Li et al. 2021, "Federated Learning on Non-IID Features via Local Batch Normalization".
SiloBN: Andreux et al. 2020, "Siloed Federated Learning for Multi-Centric Histopathology Datasets".
FixBN: Zhong et al. 2023, "Making Batch Normalization Great in Federated Deep Learning".
FedPer: Arivazhagan et al. 2019, "Federated Learning with Personalization Layers".
LG-FedAvg: Liang et al. 2020, "Think Locally, Act Globally".
FedBABU: Oh et al. 2022, "FedBABU: Towards Enhanced Representation for Federated Image Classification".
FedRep: Collins et al. 2021, "Exploiting Shared Representations for Personalized Federated Learning".
FedPAC: Xu et al. 2023, the head trained before the body (arXiv 2306.11867).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting

from ..base import FedAvgClient
from ..modules.batch_norm import batch_norm_entries, batch_norm_modules, batch_norm_statistics, pools
from ..modules.frozen import untrained
from ..modules.head import head_entries, head_of
from ..modules.lazy_torch import nn
from ..objectives.base import Plain
from ..training import LocalRun, train_model


class AloneClient(FedAvgClient):
    """Keeps the whole model at home. Only further records are sent, such as FedProto's prototypes."""

    helps = ("baseline",)

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return frozenset(model.state_dict())


class FedBNClient(FedAvgClient):
    """Keeps every BatchNorm entry at home and shares everything else (arXiv 2102.07623, Algorithm 1)."""

    purpose = "Keeps every BatchNorm entry at home and shares everything else."
    helps = ("feature-shift", "personal-models")
    paper = "li2021fedbn"

    decides = "BatchNorm"

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return batch_norm_entries(model)


class SiloBNClient(FedAvgClient):
    """Keeps the BatchNorm statistics at home and shares everything else (arXiv 2008.07424, section 3)."""

    purpose = "Keeps the BatchNorm statistics at home and shares everything else."
    helps = ("feature-shift", "personal-models")
    paper = "andreux2020siloed"

    decides = "BatchNorm"

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return batch_norm_statistics(model)


class FixBNClient(FedAvgClient):
    """Shares everything; from a round on, BatchNorm statistics are fixed and normalise in training too.

    arXiv 2303.06530. In the first stage it is FedAvg. In the second, training and evaluation use
    the same statistics, those of all clients, while weight and bias go on. The paper's server momentum is
    that of the strategy, such as ``fedavgm``.
    """

    purpose = "One shared model; in its last rounds BatchNorm trains with the shared statistics."
    helps = ("label-skew",)
    paper = "zhong2023fixbn"

    decides = "BatchNorm"

    fix_from: int = setting(
        0,
        ge=0,
        description="round from which on statistics are fixed; 0 for the second half of the rounds",
    )
    rounds: int = setting(10, ge=1, description="number of rounds")

    def still_in(self, server_round: int) -> frozenset[str]:
        if server_round < (self.fix_from or self.rounds // 2 + 1):
            return self.still
        return self.still.union(name for name, layer in batch_norm_modules(self.task.model) if pools(layer))


class FedPerClient(FedAvgClient):
    """Keeps the head at home, trained together with the body (arXiv 1912.00818, algorithms 1 and 2)."""

    purpose = "Keeps the head at home, trained together with the body."
    helps = ("personal-models", "label-skew")
    paper = "arivazhagan2019fedper"

    decides = "the head"

    @staticmethod
    def local_entries(model: nn.Module) -> Iterable[str]:
        return head_entries(model)


class LGFedAvgClient(FedAvgClient):
    """Keeps the body at home and shares the head, trained together (arXiv 2001.01523): FedPer turned round.

    BatchNorm of the body stays at home with it.
    """

    purpose = "Keeps the body at home and shares the head: FedPer turned round."
    helps = ("personal-models",)
    paper = "liang2020lgfedavg"

    decides = "the body"

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return frozenset(model.state_dict()) - head_entries(model)


class FedBABUClient(FedAvgClient):
    """Shares everything and trains the body: the head stays as initialised (arXiv 2106.06042).

    In training the head is frozen and in evaluation mode. The steps of ``fine-tune`` before an evaluation
    train the whole model, body and head, as in the paper.
    """

    purpose = "Shares everything and trains the body alone: for fine-tuning afterwards (--fine-tune)."
    helps = ("personal-models", "label-skew")
    paper = "oh2022fedbabu"

    decides = "the head"
    also_decides = frozenset({"what a round trains"})
    trains_head = False

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        model, entries = self.task.model, head_entries(self.task.model)
        head = [p for name, p in model.named_parameters() if name in entries and p.requires_grad]
        with untrained(head):
            return train_model(model, run, set(head_of(model)[1].modules()))


SEED = 1  # appended to the seed of the round, for the head's training


class FedRepClient(FedPerClient):
    """Keeps the head at home and trains it first, then the body (arXiv 2102.07078, algorithm 1).

    The part that is not being trained is frozen and in evaluation mode. The objective's terms, which concern
    shared parameters, apply only to the training of the body.
    """

    purpose = "Keeps the head at home and trains it first, then the body."
    helps = ("personal-models", "label-skew")
    paper = "collins2021fedrep"

    also_decides = frozenset({"what a round trains"})

    head_epochs: int = setting(10, ge=1, description="passes over the client's examples to train the head")

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        model, entries = self.task.model, head_entries(self.task.model)
        inside = set(head_of(model)[1].modules())
        outside = set(model.modules()) - inside
        head_run = self.with_objective(Plain).begin_run(dict(model.named_parameters()), config, {})
        training = replace(run.training, epochs=self.head_epochs)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        head = [p for name, p in trained.items() if name in entries]
        body = [p for name, p in trained.items() if name not in entries]
        metrics: dict[str, float] = {}
        if head:
            with untrained(body):
                head_run = replace(head_run, training=training, seed=(*run.seed, SEED))
                metrics = train_model(model, head_run, outside)
        if body:
            with untrained(head):
                metrics = train_model(model, run, inside)
        return metrics


class FedPACClient(FedRepClient):
    """Shares everything; a round first trains the head with the body frozen, then the body."""

    helps = ("personal-models", "label-skew")
    paper = "xu2023fedpac"
    requires: ClassVar[dict[str, set[Any]]] = {"strategy": {"fedpac"}}

    head_epochs: int = setting(
        1, ge=1, alias="fedpac-head-epochs", description="passes over the client's examples to train the head"
    )

    local_entries = staticmethod(FedAvgClient.local_entries)
