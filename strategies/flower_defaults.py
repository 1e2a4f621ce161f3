"""The rules whose defaults differ from Flower's, with Flower's.

    from fedbn_flower.strategies.flower_defaults import FedAdam, FedAvgM, FedYogi

Arguments, settings and everything else are as in `strategies`.
"""

from .rules.adaptive import FedAdagrad as OwnFedAdagrad
from .rules.adaptive import FedAdam as OwnFedAdam
from .rules.adaptive import FedYogi as OwnFedYogi
from .rules.averaging import FedAvgM as OwnFedAvgM

__all__ = ["FedAdagrad", "FedAdam", "FedAvgM", "FedYogi"]


class FedAdagrad(OwnFedAdagrad):
    """FedAdagrad with Flower's server rate, 0.1."""

    paper = OwnFedAdagrad.paper
    eta = 0.1


class FedAdam(OwnFedAdam):
    """FedAdam with Flower's server rate, 0.1."""

    paper = OwnFedAdam.paper
    eta = 0.1


class FedYogi(OwnFedYogi):
    """FedYogi without bias correction, as in Flower."""

    paper = OwnFedYogi.paper
    bias_correction = False


class FedAvgM(OwnFedAvgM):
    """FedAvgM without momentum, as in Flower: it is FedAvg until ``server_momentum`` is given."""

    paper = OwnFedAvgM.paper
    server_momentum = 0.0
