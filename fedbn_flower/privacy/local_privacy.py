"""Local, client-level differential privacy of one run: each client adds the noise before its update leaves.

No sampling hides a client from whoever reads its messages, so its epsilon is that of its own participations
(`accounts.local_epsilon`). The run's is the greatest.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Any

from fedbn_flower.clients import FedAvgClient, NamedArrays, Update, by_name
from fedbn_flower.clients.modules.local_dp import LocalMechanism

from .accounts import Release, check_installed, composed_epsilon, local_epsilon, local_noise_for
from .floors import Refused
from .in_words import outside
from .keys import Key
from .private_run import NO_SEED, PrivateRun
from .run_privacy import PUBLIC_KEY, PrivacyAtClients, notices_of_delta, notices_of_noise

NOTION = "client, local"


def noise_of(config: PrivateRun) -> float:
    """Return z; with ``dp-epsilon`` it is found for clients that train in every round.

    Raises
    ------
    UserError
        When the package that accounts is missing.
    """
    check_installed("dp")
    return config.dp_noise or local_noise_for(config.dp_epsilon, config.rounds, config.dp_delta)


class LocalPrivacy(PrivacyAtClients):
    """The privacy of one run, as its server states it: it knows who was asked how often.

    Parameters
    ----------
    config : PrivateRun
        With ``dp`` local.
    parameters : int
        How many numbers of the model travel and are trained.

    Raises
    ------
    UserError
        As `noise_of`.
    """

    notion = NOTION
    adjacency = "replace-one"
    sampling = "none"
    lists_clients = True

    def __init__(self, config: PrivateRun, parameters: int) -> None:
        super().__init__(config, noise_of(config))
        self.parameters = parameters

    def notices(self) -> Iterator[str]:
        """Yield warnings of what is allowed but hardly meant, one line each."""
        config = self.config
        yield from notices_of_delta(config.dp_delta, config.num_training)
        share = sqrt(config.clients_a_round / self.parameters) / self.noise
        clients = f"the root of {config.clients_a_round}"
        yield from notices_of_noise(clients, self.noise, self.parameters, share)
        if config.dp_seed != NO_SEED:
            yield PUBLIC_KEY

    def epsilon(self, rounds: int, metrics: Release | None = None) -> float:
        """Return epsilon of a client that has trained in so many rounds, with its metrics."""
        if metrics:
            return composed_epsilon([Release(self.noise / 2, count=rounds), metrics], self.config.dp_delta)
        return local_epsilon(self.noise, rounds, self.config.dp_delta)

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` says of it."""
        return super().summary() | {"participations": self._participations(), "outside": outside(NOTION)}


def released(
    config: PrivateRun,
    client: FedAvgClient,
    received: NamedArrays,
    update: Update,
    server_round: int,
) -> Update:
    """Return what a client sends in the place of an update.

    The trained entries move by a clipped and noisy update. Others are those received.

    Parameters
    ----------
    config : PrivateRun
        With ``dp`` local.
    client : FedAvgClient
        The client.
    received : NamedArrays
        The shared entries before training.
    update : Update
        What training gave.
    server_round : int
        The round.

    Raises
    ------
    Refused
        When it has further records. Then nothing may leave.
    """
    if update.records:
        raise Refused(f"privacy: dp 'local' does not protect the record {min(update.records)!r}")
    assert config.clip
    secret = config.dp_seed == NO_SEED
    key = Key() if secret else Key.of_seed(config.dp_seed).of_client(client.task.seed[-1])
    mechanism = LocalMechanism(config.clip, noise_of(config), key.numbers(server_round, 1, "noise"))
    before, after = received.by_name(), by_name(update.arrays, client.shared_names)
    names = [name for name in client.trained_names if name in before]
    sent = mechanism.release({n: before[n] for n in names}, {n: after[n] for n in names})
    by_every_name = {alias: array for n, array in sent.items() for alias in client.aliases.get(n, (n,))}
    return Update(NamedArrays({**before, **by_every_name}), update.num_examples, update.metrics)
