"""Attacks on whole runs: canaries take part as clients, and an audit of the models finds broken runs out.

Client i sends a vector along its own direction u_i, far longer than C. One that is out sends the opposite, or
nothing where a client more or less is accounted. Who sees all models scores it by ``sum_t <D_t, u_i>``
(`audit`).
"""

import numpy as np
import pytest

from clients import FedAvgClient
from fedbn_flower.privacy import client_mechanism
from fedbn_flower.privacy.client_mechanism import ClientMechanism
from fedbn_flower.privacy.keys import SecretNumbers
from fedbn_flower.privacy.noise import CorrelatedNoise
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from strategies import reply_reader

from ...quick import some_quick
from ..records.helpers import Watching, entries
from .audit import audited

pytestmark = pytest.mark.slow

CANARIES, GUESSES, CLAIM = 320, 60, 1.0
INSIDE = np.random.default_rng(3).random(CANARIES) < 0.5


class Canary(FedAvgClient):
    """Sends a far model in the place of what it was to train."""

    out = 0.0

    def fit(self, parameters, config):
        weight, bias = (array.copy() for array in parameters)
        canary = self.task.seed[-1]
        weight.flat[canary] += 1000.0 if INSIDE[canary] else self.out
        return [weight, bias], 1, {"loss": 0.0, "accuracy": 0.0}


SMALL = {
    "dp": "client", "dp_epsilon": CLAIM, "dp_delta": 1e-5, "dp_seed": 6, "num_clients": CANARIES,
    "partition": "iid", "model": "linear", "fraction_evaluate": 0, "strategy": "fedavg",
    "client": f"{__name__}:Canary",
}  # fmt: skip
SAMPLINGS = {
    "poisson": {"fraction_train": 0.5, "rounds": 3},
    "fixed": {"dp_sampling": "fixed", "fraction_train": 0.25, "rounds": 4},
    "all": {"dp_sampling": "all", "rounds": 1},
    "secure": {"dp_secure_noise": True, "dp_sampling": "all", "rounds": 1},
    "cyclic": {"dp_sampling": "cyclic", "fraction_train": 0.25, "rounds": 8},
    "in shares": {"secagg": "plain", "rounds": 1},
}


NOISES = {0, 3}
"""Of the samplings one for each way in which a server draws noise; shares are audited by themselves."""


def steps_of(configured, folder, monkeypatch, fault=None, **values):
    """Return the steps ``n D_t`` of a run of canaries, (rounds, m); its epsilon is `CLAIM`."""
    if fault:
        fault(monkeypatch)
    monkeypatch.setattr(Canary, "out", -1000.0 if values.get("dp_sampling") == "fixed" else 0.0)
    config = configured(**{**SMALL, **values})
    federation = Federation(config)
    models = [federation.initial]
    watching = Watching(lambda result: models.append(entries(result)))
    found = simulate(federation, folder, None, [watching]).as_json()["privacy"]
    assert 0.99 * CLAIM < found["epsilon"] <= CLAIM  # a broken run claims the same
    weights = [model["1.weight"].astype(float).flat[:CANARIES] for model in models]
    return np.diff(weights, axis=0) * found.get("clients-a-round", CANARIES)


def quarter_of_the_noise(monkeypatch):
    normal = SecretNumbers.normal
    monkeypatch.setattr(SecretNumbers, "normal", lambda self, count: normal(self, count) / 4)
    discrete = client_mechanism.discrete_gaussian
    monkeypatch.setattr(
        client_mechanism, "discrete_gaussian", lambda words, count: discrete(words, count) // 4
    )
    in_shares = "fedbn_flower.secagg.noise.discrete_gaussian"
    monkeypatch.setattr(in_shares, lambda *asked: discrete(*asked) // 4)


def clip_that_leaks(monkeypatch):
    factor = reply_reader.clipping_factor
    monkeypatch.setattr(reply_reader, "clipping_factor", lambda norm, bound: factor(norm, 4 * bound))


def client_that_counts_often(monkeypatch):
    once = reply_reader.ReplyReader.sum

    def often(self, *arguments, **keywords):
        for _ in range(4):
            once(self, *arguments, **keywords)

    monkeypatch.setattr(reply_reader.ReplyReader, "sum", often)


@pytest.mark.parametrize(
    ("sampling", "fault"),
    [
        *((sampling, None) for sampling in SAMPLINGS),
        *some_quick([(sampling, quarter_of_the_noise) for sampling in SAMPLINGS], NOISES),
        ("all", clip_that_leaks),
        ("all", client_that_counts_often),
    ],
)
def test_a_run_holds_what_it_claims_and_a_broken_one_is_found_out(
    configured, tmp_path, monkeypatch, sampling, fault
):
    steps = steps_of(configured, tmp_path, monkeypatch, fault, **SAMPLINGS[sampling])
    if sampling == "cyclic":  # M makes the noise independent, and everybody knows whose turn it is
        correlated = CorrelatedNoise(8, 4)
        m = [[correlated.entry(i, j) if 0 <= i - j < 4 else 0.0 for j in range(8)] for i in range(8)]
        turns = np.arange(CANARIES) % 4 == np.arange(8)[:, np.newaxis] % 4
        steps = (m @ steps) * (m @ turns)
    assert (audited(steps.sum(0), INSIDE, GUESSES, 1e-5) > CLAIM) == bool(fault)


def drawn(server_round):
    """What would be drawn from the public seed of a run."""
    return np.random.default_rng([0, server_round]).random(CANARIES) < 0.05


def sample_from_the_public_seed(monkeypatch):
    monkeypatch.setattr(ClientMechanism, "sample", lambda self, server_round, _: drawn(server_round))


@pytest.mark.parametrize("fault", [None, sample_from_the_public_seed])
def test_a_sample_that_everybody_can_draw_is_found_out(configured, tmp_path, monkeypatch, fault):
    """Only the rounds count in which a canary would be drawn."""
    values = {"fraction_train": 0.05, "rounds": 20}
    steps = steps_of(configured, tmp_path, monkeypatch, fault, **values)
    known = np.array([drawn(t) for t in range(1, 21)])
    scores = ((steps - 0.5) * known).sum(0)
    assert (audited(scores, INSIDE, GUESSES, 1e-5) > CLAIM) == bool(fault)
