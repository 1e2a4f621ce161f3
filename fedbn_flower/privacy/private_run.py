"""What privacy reads of a run, and the words of its keys."""

from collections.abc import Mapping
from typing import Literal, Protocol

from .accounts import Sampling

ADAPTIVE = "adaptive"
"""The clip that goes to a quantile of the norms."""
NO_SEED = -1
"""The ``dp-seed`` of a run with a secret key."""
AT_CLIENTS = frozenset({"local", "example"})
"""The notions that protect clients from the server too: whatever leaves a client has noise, or is public."""


def against_server(keys: Mapping[str, object]) -> bool:
    """Return whether clients are protected from the server too; with secure aggregation also by ``client``.

    Parameters
    ----------
    keys : Mapping[str, object]
        A run's keys, or those that a message, a file or a node knows of it.
    """
    dp, summed = keys.get("dp"), keys.get("secagg", "off") != "off"
    return dp in AT_CLIENTS or (dp == "client" and summed)


class PrivateRun(Protocol):
    """The keys of a run that privacy reads, each by its name, and what follows from them."""

    @property
    def dp(self) -> Literal["none", "client", "local", "example"]: ...
    @property
    def dp_epsilon(self) -> float: ...
    @property
    def dp_delta(self) -> float: ...
    @property
    def dp_noise(self) -> float: ...
    @property
    def dp_sampling(self) -> Sampling: ...
    @property
    def dp_bands(self) -> int: ...
    @property
    def dp_secure_noise(self) -> bool: ...
    @property
    def dp_metrics(self) -> float: ...
    @property
    def dp_unit(self) -> str: ...
    @property
    def dp_seed(self) -> int: ...
    @property
    def dp_honest(self) -> float: ...
    @property
    def secagg(self) -> Literal["off", "plain", "on"]: ...
    @property
    def secagg_min(self) -> int: ...
    @property
    def against_server(self) -> bool:
        """Whether clients are protected from the server too; see `against_server`."""

    @property
    def dp_simulate_cohort(self) -> int: ...
    @property
    def dp_simulate_population(self) -> int: ...
    @property
    def clip(self) -> float | None:
        """The number of ``dp-clip``; None if it adapts."""

    @property
    def rounds(self) -> int: ...
    @property
    def local_epochs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def fraction_train(self) -> float: ...
    @property
    def evaluate_every(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def num_training(self) -> int:
        """The number of clients that can train."""

    @property
    def clients_a_round(self) -> int:
        """The number of clients that train in a round, where it is the same in each."""

    @property
    def clients_report(self) -> bool:
        """Whether clients send metrics."""

    def held_out_splits(self, final: bool) -> str:
        """The splits that a round evaluates on, with commas."""


def num_groups(sampling: Sampling, share: float) -> int:
    """Return the number of groups of that share that take turns with ``cyclic`` sampling; 0 without."""
    return round(1 / share) if sampling == "cyclic" else 0


def num_answers(sampling: Sampling, share: float, clients: int, a_round: int) -> float:
    """Return the expected number of clients that train in a round.

    Parameters
    ----------
    sampling : str
        Who trains in a round; see `accounts`.
    share : float
        ``fraction-train``.
    clients : int
        The number of clients that can train.
    a_round : int
        The number that trains in a round, where it is the same in each.
    """
    if sampling == "poisson":
        return share * clients
    if groups := num_groups(sampling, share):
        return clients / groups
    return float(a_round)
