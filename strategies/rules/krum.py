"""Flower's Krum, MultiKrum and Bulyan: FedAvg on a mean of the answers that are near each other."""

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting

from .fedavg import FedAvg


class MultiKrum(FedAvg):
    """FedAvg on the mean of the ``num_nodes_to_select`` answers that Krum scores best.

    Blanchard et al. 2017 (arXiv 1703.02757), Section 4. It needs 2 ``num_malicious_nodes`` + 3 answers.
    """

    _settings_before_: ClassVar[str] = "weighted_by_key"
    num_malicious_nodes: int = setting(0, ge=0, description="answers that may be lies")
    num_nodes_to_select: int = setting(1, ge=1, description="answers that count")

    @property
    def _mean_(self) -> str:  # type: ignore[override]
        return f"multi-krum:{self.num_malicious_nodes},{self.num_nodes_to_select}"


class Krum(MultiKrum):
    """FedAvg on the one answer that Krum scores best: Blanchard et al. 2017 (arXiv 1703.02757), Section 4."""

    @property
    def num_nodes_to_select(self) -> int:  # type: ignore[override]
        return 1


class Bulyan(FedAvg):
    """FedAvg on Bulyan over Krum: El Mhamdi et al. 2018 (arXiv 1802.07927), Section 4.

    It needs 4 ``num_malicious_nodes`` + 3 answers.
    """

    _settings_before_: ClassVar[str] = "weighted_by_key"
    num_malicious_nodes: int = setting(0, ge=0, description="answers that may be lies")

    @property
    def _mean_(self) -> str:  # type: ignore[override]
        return f"bulyan:{self.num_malicious_nodes}"
