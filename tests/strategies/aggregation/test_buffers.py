"""Buffers by hand: factors by staleness, differences to older models, statistics, and what is refused."""

from math import sqrt

import numpy as np
import pytest

from strategies import STRATEGIES, FedAvg, FedMedian, FedYogi
from strategies.aggregation.buffers import Buffer, BufferedAnswer, FedAsync, FedBuff, hinge, protocol_of
from strategies.guarantees import goes_with_buffers

from ..helpers import CannedGrid, ndarrays, record, train, train_reply


def model(weight, mean, variance=1.0):
    f32 = np.float32
    return {"w": np.array([weight], f32), "running_mean": np.array([mean], f32), "running_var": f32(variance)}


VERSIONS = {2: model(1.0, 8.0, 4.0), 5: model(10.0, 4.0, 1.0)}
TRAINED = {0: model(2.0, 16.0, 0.25), 1: model(16.0, 4.0, 2.0), 3: model(9.0, 0.0, 0.5)}
"""Clients 0 and 3 got version 2 and client 1 version 5, which is the server's."""
FACTOR = 1 / sqrt(4)
"""Of a staleness of 3."""


def updated(rule, protocol, answers, examples=None, clients=4):
    """The model after a buffer of answers (version, partition), and what each client was sent."""
    seen = {}

    def client(message, node):
        seen[node] = ndarrays(message.content.array_records["arrays"])["w"].item()
        return train_reply(message, TRAINED[node], (examples or {}).get(node, 1))

    grid, models = CannedGrid(clients, client), {v: record(m) for v, m in VERSIONS.items()}
    rule._buffer_ = Buffer(protocol, 5, [BufferedAnswer(*answer) for answer in answers], models)
    arrays, _ = train(rule, VERSIONS[5], grid, 6)
    return {name: array.item() for name, array in ndarrays(arrays).items()}, seen


BUFFER = [(2, 0), (2, 3), (5, 1)]


def test_fedbuff_by_hand():
    """Differences to what each client got; statistics mix into the server's."""
    x, seen = updated(FedAvg(ask_partitions=True, weighted_by_key=None), FedBuff(3), BUFFER)
    assert seen == {0: 1.0, 3: 1.0, 1: 10.0}
    assert x["w"] == pytest.approx(10 + (FACTOR * 1 + FACTOR * 8 + 6) / 3)
    assert x["running_mean"] == pytest.approx(4 + (FACTOR * 12 + FACTOR * -4 + 0) / 3)
    assert x["running_var"] == pytest.approx(1 + (FACTOR * -0.75 + FACTOR * -0.5 + 1) / 3)


def test_answers_weigh_by_examples_if_the_rule_says_so():
    x, _ = updated(FedAvg(ask_partitions=True), FedBuff(3), BUFFER, {0: 5, 1: 2, 3: 1})
    assert x["w"] == pytest.approx(10 + (5 * FACTOR * 1 + 1 * FACTOR * 8 + 2 * 6) / 8)


def test_any_rule_steps_from_the_mean():
    """FedYogi's first step from m = D/10 and v = D^2/100, both corrected, is eta D / (|D| + tau)."""
    x, _ = updated(FedYogi(ask_partitions=True, weighted_by_key=None), FedBuff(3), BUFFER)
    delta = (FACTOR * 1 + FACTOR * 8 + 6) / 3
    assert x["w"] == pytest.approx(10 + 0.01 * delta / (delta + 1e-3))


def test_the_median_is_of_the_scaled_differences():
    x, _ = updated(FedMedian(ask_partitions=True), FedBuff(3), BUFFER)
    assert x["w"] == pytest.approx(10 + sorted([FACTOR * 1, FACTOR * 8, 6])[1])


def test_a_bound_is_on_the_difference_to_what_the_client_got():
    """Of 1 at client 0, 8 at client 3 and 6 at client 1, no more than 2."""
    rule = FedAvg(ask_partitions=True, weighted_by_key=None, clip_update_norm=2.0)
    x, _ = updated(rule, FedBuff(3), BUFFER)
    assert x["w"] == pytest.approx(10 + (FACTOR * 1 + FACTOR * 2 + 2) / 3)


def test_fedasync_by_hand():
    """x is (1 - a) x + a x_i, whatever client i got; so are statistics."""
    protocol = protocol_of("fedasync:polynomial:0.5", 0.6)
    x, _ = updated(FedAvg(ask_partitions=True), protocol, [(2, 0)])
    a = 0.6 * FACTOR
    assert x == pytest.approx(
        {
            "w": (1 - a) * 10 + a * 2,
            "running_mean": (1 - a) * 4 + a * 16,
            "running_var": (1 - a) * 1 + a * 0.25,
        }
    )


def test_a_client_that_is_not_connected_is_missing_from_the_mean():
    x, seen = updated(FedAvg(ask_partitions=True, weighted_by_key=None), FedBuff(3), BUFFER, clients=2)
    assert seen == {0: 1.0, 1: 10.0}
    assert x["w"] == pytest.approx(10 + (FACTOR * 1 + 6) / 2)


def test_a_rule_is_told_how_many_clients_are_connected():
    """Four, of which three answer."""

    class OverAll(FedAvg):
        def server_step(self, delta, state, round):
            return delta * round.num_answers / round.num_nodes

    x, _ = updated(OverAll(ask_partitions=True, weighted_by_key=None), FedBuff(3), BUFFER)
    assert x["w"] == pytest.approx(10 + (FACTOR * 1 + FACTOR * 8 + 6) / 4)


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("fedbuff:2", [1, 1 / sqrt(2), 1 / sqrt(3), 1 / 2]),
        ("fedasync", [0.5] * 4),
        ("fedasync:constant", [0.5] * 4),
        ("fedasync:polynomial:2", [0.5, 0.5 / 4, 0.5 / 9, 0.5 / 16]),
        ("fedasync:hinge:10:1", [0.5, 0.5, 0.5 / 11, 0.5 / 21]),
        ("fedasync:hinge:1:0", [0.5, 0.5 / 2, 0.5 / 3, 0.5 / 4]),
    ],
)
def test_factors_by_hand(text, factors):
    protocol = protocol_of(text, 0.5)
    assert [protocol.factor(staleness) for staleness in range(4)] == pytest.approx(factors)
    assert protocol.size == (2 if "fedbuff" in text else 1)
    assert protocol.from_current == isinstance(protocol, FedAsync)


def test_the_hinge_may_lie_between_two_versions():
    assert [hinge(2, 1.5)(staleness) for staleness in (1, 2, 3)] == [1, 1 / 2, 1 / 4]


NO_PROTOCOLS = [
    "", "async", "sync:1", "fedbuff", "fedbuff:", "fedbuff:0", "fedbuff:-1", "fedbuff:1.5", "fedbuff:2:3",
    "fedasync:", "fedasync:none", "fedasync:constant:1", "fedasync:polynomial", "fedasync:polynomial:-1",
    "fedasync:polynomial:nan", "fedasync:polynomial:1:2", "fedasync:hinge:1", "fedasync:hinge:inf:1",
    "fedasync:hinge:1:2:3",
]  # fmt: skip


def test_what_is_no_protocol():
    for text in NO_PROTOCOLS:
        with pytest.raises(ValueError, match="expected sync, fedbuff:K, fedasync"):
            protocol_of(text, 0.6)


def test_which_rules_go_with_buffers():
    """Those whose step is a function of the mean, however the answers are scaled."""
    assert {name for name, rule in STRATEGIES.items() if not goes_with_buffers(rule)} == {
        "afl", "cfl", "fedadmm", "fedamp", "fedap", "fedcm", "feddc", "feddisco", "feddyn", "fedexp",
        "fednova", "fedpac", "fedproto", "fedsat", "fedsmoo", "fedtan", "ifca", "mime", "mimelite", "qfedavg",
        "scaffold", "scaffold-momentum", "term",
    }  # fmt: skip


@pytest.mark.parametrize("clip", [0.0, 100.0])
def test_an_entry_that_is_infinite_in_a_stale_model_stays_so(monkeypatch, clip):
    """As in an attention mask: ``-inf - -inf`` would be NaN. The other entry is that of
    `test_fedbuff_by_hand`,
    of which no update is longer than 100."""

    def masked(models):
        return {k: {**m, "w": np.array([-np.inf, m["w"].item()], np.float32)} for k, m in models.items()}

    versions, trained = masked(VERSIONS), masked(TRAINED)
    grid = CannedGrid(4, lambda message, node: train_reply(message, trained[node]))
    rule = FedAvg(ask_partitions=True, weighted_by_key=None, clip_update_norm=clip)
    answers = [BufferedAnswer(*answer) for answer in BUFFER]
    rule._buffer_ = Buffer(FedBuff(3), 5, answers, {v: record(m) for v, m in versions.items()})
    arrays, _ = train(rule, versions[5], grid, 6)
    assert not rule.phase_report.failures
    first, second = ndarrays(arrays)["w"].tolist()
    assert first == -np.inf
    assert second == pytest.approx(10 + (FACTOR * 1 + FACTOR * 8 + 6) / 3)
