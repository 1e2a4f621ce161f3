"""A client of one's own: it says what stays at home.

python run_sim.py --client examples/fedper.py:FedPer
flwr run . --run-config "client='examples/fedper.py:FedPer'"
"""

from torch import nn

from fedbn_flower.clients import FedAvgClient


class FedPer(FedAvgClient):
    """Keeps the last layer at home.

    Arivazhagan et al. 2019, "Federated Learning with Personalization Layers" (arXiv 1912.00818).
    """

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        *_, last = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
        return frozenset({f"{last}.weight", f"{last}.bias"})
