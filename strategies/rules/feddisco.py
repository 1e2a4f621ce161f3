"""FedDisco: Ye et al. 2023, "Federated Learning with Discrepancy-Aware Collaboration" (arXiv 2305.19229)."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.serverapp.exception import AggregationError

from fedbn_flower.core.ground.settings import setting

from ..aggregation.rule_state import CLASS_COUNTS, RuleState
from .fedavg import FedAvg


class FedDisco(FedAvg):
    """FedAvg with weights proportional to ``relu(p_i - a d_i + b)``.

    p_i is client i's share of the examples of those that are asked, d_i the L2 distance of its shares of
    the classes from the shares in all clients' data together. Counts of classes travel once: the server needs
    them before the first round, as the vector ``class-counts`` of its state. If no weight is positive, all
    are p_i. The authors' code has other distances too; unless told, it takes the Kullback-Leibler divergence,
    divided by its sum over the clients.
    """

    purpose = "Gives clients with unusual shares of classes less weight than their size would."
    helps = ("label-skew",)
    paper = "ye2023feddisco"

    requires = {  # noqa: RUF012
        "mean": {"weighted", "geometric-median"},
        "weighting": {"num-examples"},
        "dp": {"none"},  # the classes of a client's examples are its own
    }
    of_classes = True

    a: float = setting(0.5, ge=0, alias="disco-a", description="how much a distance takes off the weight")
    b: float = setting(0.1, ge=0, alias="disco-b", description="what is added to every weight")

    def answer_weights(self, asked: Sequence[int], state: RuleState) -> Mapping[int, float]:
        counts = state.vectors.get(CLASS_COUNTS)
        if counts is None or any(partition >= len(counts) for partition in asked):
            wanted = f"rule_state.vectors[{CLASS_COUNTS!r}], (clients, classes), and ask_partitions=True"
            raise AggregationError(f"FedDisco needs {wanted}")
        sizes = counts.sum(axis=1)
        shares = counts / np.maximum(sizes, 1)[:, None]
        distances = np.linalg.norm(shares - counts.sum(axis=0) / counts.sum(), axis=1)
        total = sizes[list(asked)].sum()
        sized = {partition: float(sizes[partition] / total) for partition in asked}
        weights = {i: max(0.0, p - self.a * float(distances[i]) + self.b) for i, p in sized.items()}
        return weights if any(weights.values()) else sized
