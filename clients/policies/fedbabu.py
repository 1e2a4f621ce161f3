"""FedBABU: Oh et al. 2022, "FedBABU: Towards Enhanced Representation for Federated Image Classification"."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.common import Scalar

from ..base import FedAvgClient
from ..modules.frozen import untrained
from ..modules.head import head_entries, head_of
from ..training import LocalRun, train_model


class FedBABUClient(FedAvgClient):
    """Shares everything and trains the body: the head stays as initialised (arXiv 2106.06042).

    In training the head is frozen and in evaluation mode. The steps of ``fine-tune`` before an evaluation are
    of the whole model, body and head, as in the paper.
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
