"""The base of every client: load, train, evaluate; what stays at home is the subclass's one decision."""

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray
from torch import nn

from .batch_norm import batch_norm_statistics, estimate_statistics
from .examples import Examples
from .objectives import OBJECTIVES
from .state import ClientState
from .training import EVALUATION_BATCH, LocalTraining, evaluate_splits, load_entries, train_model


@dataclass(frozen=True, eq=False)
class LocalTask:
    """What a client works on.

    Parameters
    ----------
    model : nn.Module
        May be shared by the clients of a process: every entry is loaded before it is used.
    initial : Mapping[str, NDArray]
        The state dict of the run's initial model, the same for all clients.
    train : Examples
        The client's own training examples.
    evaluation : Mapping[str, Examples]
        Held-out examples by split name (``test``, ``val``).
    training : LocalTraining
        How it trains.
    seed : tuple[int, ...]
        The run's seed and the partition id; with the round, all randomness derives from it.
    """

    model: nn.Module
    initial: Mapping[str, NDArray]
    train: Examples
    evaluation: Mapping[str, Examples]
    training: LocalTraining
    seed: tuple[int, int]


class FedAvgClient(NumPyClient):
    """Shares the whole model, BatchNorm statistics included (McMahan et al. 2017).

    Subclasses keep entries at home by overriding `local_entries`.
    """

    STATE_GROUP = "local"

    def __init__(self, task: LocalTask, state: ClientState) -> None:
        self.task = task
        self.state = state
        local = self.local_entries(task.model)
        self.local_names = [name for name in task.initial if name in local]
        self.shared_names = [name for name in task.initial if name not in local]
        self.received_control: dict[str, NDArray] | None = None
        """What the server sent beside the model, by parameter name (SCAFFOLD's c)."""
        self.sent_control: dict[str, NDArray] | None = None
        """What goes back beside the model."""

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        """Names of the state dict's entries that never leave this client."""
        return frozenset()

    def get_parameters(self, config: dict[str, Scalar]) -> NDArrays:
        """The model's shared entries, in the order of `shared_names`."""
        entries = self.task.model.state_dict()
        return [entries[name].numpy().copy() for name in self.shared_names]

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Train from the received shared entries and the client's own local ones.

        Parameters
        ----------
        parameters : list[NDArray]
            In the order of `shared_names`.
        config : dict
            ``server-round``, ``client-lr``, ``client-lr-decay`` (a factor per round), ``objective`` and its
            ``mu`` or ``alpha``, and ``eval-splits``: comma-separated splits on which to evaluate the
            trained model.

        Raises
        ------
        FloatingPointError
            When training diverged; the client's memory stays as it was.
        """
        task = self.task
        self._load(parameters)
        server_round = int(config["server-round"])
        name = str(config["objective"])
        rate = float(config["client-lr"]) * float(config["client-lr-decay"]) ** (server_round - 1)
        parameters_by_name = dict(task.model.named_parameters())
        taking_part = {
            n: p for n, p in parameters_by_name.items() if n in self.shared_names and p.requires_grad
        }
        objective = OBJECTIVES[name](taking_part, config, self.state.read(name), self.received_control)
        seed = (*task.seed, server_round)
        metrics = train_model(task.model, task.train, task.training, objective, rate, seed)
        for entry, value in task.model.state_dict().items():
            if not value.isfinite().all():
                raise FloatingPointError(f"training diverged: {entry} is not finite")
        outcome = objective.finish(int(metrics["local-steps"]), rate)
        self.sent_control = outcome.control
        if outcome.memory is not None:
            self.state.write(name, outcome.memory)
        if self.local_names:
            entries = task.model.state_dict()
            self.state.write(
                self.STATE_GROUP, {name: entries[name].numpy().copy() for name in self.local_names}
            )
        metrics |= evaluate_splits(task.model, task.evaluation, str(config["eval-splits"]))
        return self.get_parameters({}), len(task.train), dict(metrics)

    def evaluate(
        self, parameters: NDArrays, config: dict[str, Scalar]
    ) -> tuple[float, int, dict[str, Scalar]]:
        """Evaluate the received shared entries together with the client's own local ones.

        A client that never trained has no BatchNorm statistics of its own yet: it estimates them on its
        training images first (AdaBN).
        """
        task = self.task
        if not self._load(parameters) and batch_norm_statistics(task.model) & set(self.local_names):
            estimate_statistics(task.model, task.train, EVALUATION_BATCH)
        splits = str(config["eval-splits"])
        metrics = evaluate_splits(task.model, task.evaluation, splits)
        num_examples = len(task.evaluation[splits.split(",", maxsplit=1)[0]])
        return metrics.pop("loss"), num_examples, {**metrics, "train-examples": len(task.train)}

    def _load(self, parameters: NDArrays) -> bool:
        """Load every entry of the model; whether the local ones are this client's own."""
        own = self.state.read(self.STATE_GROUP) if self.local_names else None
        local = {name: (own or self.task.initial)[name] for name in self.local_names}
        named = zip(self.shared_names, parameters, strict=True)
        load_entries(self.task.model, {**dict(named), **local})
        return own is not None
