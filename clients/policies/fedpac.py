"""FedPAC: Xu et al. 2023, the head trained before the body (arXiv 2306.11867)."""

from __future__ import annotations

from typing import Any, ClassVar

from fedbn_flower.core.ground.settings import setting

from ..base import FedAvgClient
from .fedrep import FedRepClient


class FedPACClient(FedRepClient):
    """Shares everything; a round first trains the head with the body frozen, then the body."""

    helps = ("personal-models", "label-skew")
    paper = "xu2023fedpac"
    requires: ClassVar[dict[str, set[Any]]] = {"strategy": {"fedpac"}}

    head_epochs: int = setting(
        1, ge=1, alias="fedpac-head-epochs", description="passes over the client's examples to train the head"
    )

    local_entries = staticmethod(FedAvgClient.local_entries)
