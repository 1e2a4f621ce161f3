"""A rule under a mechanism: what is clipped, what counts, and that all it publishes is what it is given."""

from fractions import Fraction

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import AggregationError
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import STRATEGIES, FedAvg, FedDyn, FedNova, FedYogi
from strategies.guarantees import post_processes_mean
from strategies.partial_sums import GroupSum, bounds_in

from .helpers import CannedGrid, ndarrays, record, train_reply

MODEL = {
    "bias": np.zeros(2, np.float32),
    "mask": np.array([0, -np.inf], np.float32),
    "weight": np.zeros((2, 2), np.float32),
}
STEPPED = ["bias", "weight"]


class Exact:
    """Publishes the sum over a constant, and remembers what it was asked."""

    def __init__(self, bound=5.0, num_answers=4.0, asked=None, step=0.0):
        self.bound = bound
        self.step = step
        self.num_answers = num_answers
        self.asked = asked
        self.published = []

    def sample(self, server_round, partitions):
        count = len(partitions)
        return np.ones(count, bool) if self.asked is None else np.isin(np.arange(count), self.asked)

    def publish(self, server_round, total, within):
        self.published.append((server_round, total.copy(), within))
        return total / total.dtype.type(self.num_answers)


def under(rule, mechanism, **settings):
    counts = {"min_train_nodes": 1, "min_available_nodes": 1, "weighted_by_key": None}
    found = rule(trainable=STEPPED, **counts, **settings)
    found.mechanism = mechanism
    return found


def moved(bias=(0, 0), weight=((0, 0), (0, 0)), mask=(0, -np.inf)):
    values = {"bias": bias, "weight": weight, "mask": mask}
    return {name: np.array(value, np.float32) for name, value in values.items()}


def one_round(strategy, answers, server_round=1):
    grid = CannedGrid(
        len(answers), lambda m, i: answers[i](m) if callable(answers[i]) else reply(m, answers[i])
    )
    messages = list(strategy.configure_train(server_round, record(MODEL), ConfigRecord(), grid))
    updated, metrics = strategy.aggregate_train(server_round, grid.send_and_receive(messages))
    return ndarrays(updated), metrics, messages


def reply(message, arrays, num_examples=1):
    return train_reply(message, arrays, num_examples)


def test_each_answer_is_clipped_over_all_that_is_stepped_and_counts_once():
    """By hand: (6, 8) and a weight of 24 are of norm 26, 5/26 of it remains; (3, 0) is short."""
    mechanism = Exact(bound=5.0, num_answers=4.0)
    answers = [
        lambda m: reply(m, moved((6, 8), ((24, 0), (0, 0))), num_examples=1000),
        lambda m: reply(m, moved((3, 0))),
    ]
    updated, *_ = one_round(under(FedAvg, mechanism), answers)
    ((_, total, within),) = mechanism.published
    kept = 5 / 26 * (1 - 1e-6)
    np.testing.assert_allclose(total, [6 * kept + 3, 8 * kept, 24 * kept, 0, 0, 0], rtol=1e-6)
    assert within == 0  # one within the bound, one beyond it
    np.testing.assert_allclose(updated["bias"], [(6 * kept + 3) / 4, 2 * kept], rtol=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scale", [1, 1e-3, 1e4, 1e12])
def test_no_sum_of_one_answer_is_longer_than_the_bound(scale):
    rng = np.random.default_rng(0)
    for _ in range(50):
        mechanism = Exact(bound=0.3, num_answers=1.0)
        bias, weight = rng.normal(scale=scale, size=2), rng.normal(scale=scale, size=(2, 2))
        one_round(under(FedAvg, mechanism), [moved(bias, weight)])
        ((_, total, _),) = mechanism.published
        assert np.linalg.norm(total.astype(np.float64)) <= 0.3


def test_with_a_grid_whole_numbers_of_its_steps_are_summed():
    """By hand: (6, 8) is cut to the length 5 less sqrt(6)/16, for six numbers and steps of 1/8."""
    mechanism = Exact(step=1 / 8)
    answers = [moved((6, 8)), moved((0.3, -0.3)), moved((1 / 16, 3 / 16))]
    updated, *_ = one_round(under(FedAvg, mechanism), answers)
    ((_, total, within),) = mechanism.published
    kept = (5 * (1 - 1e-6) - 6**0.5 / 16) / 10
    by_hand = [round(6 * kept * 8) + 2 + 0, round(8 * kept * 8) - 2 + 2, 0, 0, 0, 0]  # 1/2 and 3/2 are even
    assert total.tolist() == by_hand
    assert (total.dtype, updated["bias"].dtype, within) == (np.float64, np.float32, 0.5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1e-3, 1, 1e6]), st.sampled_from([0.3 / 2**20, 0.01, 0.07]))
def test_no_rounded_answer_is_longer_than_the_bound(seed, scale, step):
    """In whole numbers, without rounding: the sum of squares is (C / step)^2 at most."""
    values = np.random.default_rng(seed).normal(scale=scale, size=6)
    values[seed % 6 :] *= 1e-3
    mechanism = Exact(bound=0.3, num_answers=1.0, step=step)
    one_round(under(FedAvg, mechanism), [moved(values[:2], values[2:].reshape(2, 2))])
    ((_, total, _),) = mechanism.published
    assert sum(int(x) ** 2 for x in total) <= (Fraction(0.3) / Fraction(step)) ** 2


def test_whole_numbers_have_the_same_sum_in_any_order():
    """In float32 the differences of 40 clients do not; here their sum is that of Python's integers."""
    answers = list(np.random.default_rng(0).normal(scale=0.1, size=(40, 2)).astype(np.float32))
    totals = []
    for order in (answers, answers[::-1]):
        mechanism = Exact(step=2.0**-40)
        one_round(under(FedAvg, mechanism), [moved(bias) for bias in order])
        totals.append(mechanism.published[0][1].tolist())
    exact = [sum(round(float(bias[i]) * 2**40) for bias in answers) for i in (0, 1)]
    assert totals == [[*exact, 0, 0, 0, 0]] * 2


def test_a_length_of_exactly_the_bound_is_within_it():
    mechanism = Exact(bound=5.0)
    one_round(under(FedAvg, mechanism), [moved((3, 4)), moved((3, 4.001)), moved()])
    assert mechanism.published[0][2] == 0.5  # 1/2 - 1/2 + 1/2


def test_what_is_not_stepped_stays_whatever_is_answered():
    updated, *_ = one_round(under(FedAvg, Exact()), [moved(mask=(0, -np.inf)), moved((1, 1), mask=(9, 9))])
    np.testing.assert_array_equal(updated["mask"], MODEL["mask"])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_answer_that_is_not_finite_counts_nothing(value):
    mechanism = Exact()
    strategy = under(FedAvg, mechanism)
    one_round(strategy, [moved((value, 1)), moved((1, 2))])
    ((_, total, within),) = mechanism.published
    assert total.tolist() == [1, 2, 0, 0, 0, 0]
    assert within == 0.5
    assert list(strategy.phase_report.failures) == [0]


def test_an_entry_that_is_not_finite_is_refused_also_where_it_was_sent_so():
    """Without a mechanism such entries are constants, which are copied as they are."""
    mechanism = Exact()
    strategy = under(FedAvg, mechanism)
    strategy._trainable_names_ = [*STEPPED, "mask"]
    one_round(strategy, [moved((1, 2))])
    assert not mechanism.published[0][1].any()
    assert "not finite" in strategy.phase_report.failures[0]


@pytest.mark.parametrize("rule", [FedAvg, FedYogi, FedDyn])
def test_a_step_is_taken_without_any_answer(rule):
    """ "Nothing changed" would tell that nobody was asked, or that nobody could answer."""

    class Noisy(Exact):
        def publish(self, server_round, total, within):
            assert not total.any()
            assert within == 0
            return total + np.float32(0.5)

    for answers, asked in [([lambda m: Message(Error(1, "no"), reply_to=m)], None), ([moved((1, 1))], [])]:
        strategy = under(rule, Noisy(asked=asked))
        updated, metrics, _ = one_round(strategy, answers)
        assert (updated["bias"] != 0).all()
        assert metrics is None
        assert strategy.rule_state.updates == 1


def test_who_is_asked_is_the_mechanisms_choice_alone():
    _, _, messages = one_round(under(FedAvg, Exact(asked=[1, 3]), fraction_train=0.2), [moved()] * 4)
    assert [message.metadata.dst_node_id for message in messages] == [1, 3]


def test_feddyn_takes_the_number_that_was_to_be_expected():
    """By hand: h = -alpha nbar/M D with nbar/M = 2/4, and x = D - h/alpha = 1.5 D, for D = (1, 0)."""
    for answers in ([moved((2, 0))] + [moved()] * 3, [moved((1, 0)), moved((1, 0)), moved(), moved()]):
        updated, *_ = one_round(under(FedDyn, Exact(num_answers=2.0), num_clients=4), answers)
        np.testing.assert_allclose(updated["bias"], [1.5, 0])


def test_a_rule_gets_no_metrics_and_no_number_of_answers():
    seen = []

    class Looking(FedAvg):
        def server_step(self, delta, state, round):
            seen.append((dict(round.metrics), dict(round.means), round.num_answers))
            return delta

    one_round(under(Looking, Exact(num_answers=7.5)), [moved((1, 1))])
    assert seen == [({}, {}, 7.5)]


def test_tied_names_get_the_noise_of_the_first():
    class Noisy(Exact):
        def publish(self, server_round, total, within):
            return np.arange(1, total.size + 1, dtype=np.float32)

    strategy = FedAvg(tied=[("a", "b")], min_train_nodes=1, min_available_nodes=1, trainable=["a", "b"])
    strategy.mechanism = Noisy()
    start = {name: np.zeros(2, np.float32) for name in "ab"}
    grid = CannedGrid(1, lambda m, i: reply(m, start))
    messages = strategy.configure_train(1, record(start), ConfigRecord(), grid)
    updated, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert {name: array.tolist() for name, array in ndarrays(updated).items()} == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize("step", [0.0, 0.01])
def test_sums_of_workers_are_clipped_as_on_the_server(step):
    strategy, mechanism = under(FedAvg, Exact(bound=1.0)), Exact(bound=1.0, step=step)
    answers = [moved((6, 8)), moved((0.1, 0))]
    *_, messages = one_round(under(FedAvg, mechanism), answers)
    assert bounds_in(messages[0].content["config"]) == (1.0, step)
    group = GroupSum(strategy, 1, MODEL, bound=1.0, step=step)
    for arrays in answers:
        group.add(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), arrays)
    sums = ndarrays(group.records()["sums"])
    ((_, total, within),) = mechanism.published
    np.testing.assert_array_equal(sums["parameters"], total)
    assert sums["within"].tolist() == [within]


def test_without_configure_train_nothing_is_bounded_and_nothing_published():
    strategy = under(FedAvg, Exact())
    with pytest.raises(AggregationError, match="needs configure_train with a model"):
        strategy.aggregate_train(1, [])


def test_no_client_counts_twice():
    """A second answer to the same message, and one to a message that nobody sent."""
    mechanism = Exact()
    strategy = under(FedAvg, mechanism)
    grid = CannedGrid(2, lambda m, i: reply(m, moved((i, 1))))
    messages = list(strategy.configure_train(1, record(MODEL), ConfigRecord(), grid))
    other = Message(messages[0].content, 0, "train")
    other.metadata.__dict__["_message_id"] = "of another round"
    replies = grid.send_and_receive(messages)
    again = [reply(messages[0], moved((7, 7))), reply(other, moved((9, 9)))]
    strategy.aggregate_train(1, [*replies, *again])
    assert mechanism.published[0][1].tolist() == [1, 2, 0, 0, 0, 0]


class Steps(FedAvg):
    post_processes_mean = True

    def server_step(self, delta, state, round):
        return delta


class Inherits(FedAvg):
    def server_step(self, delta, state, round):
        return delta * len(round.metrics)


class Reads(FedYogi):
    def aggregate_train(self, server_round, replies):
        return super().aggregate_train(server_round, replies)


def test_which_rules_say_that_their_step_is_post_processing():
    yes = {
        "fedavg", "fedavgm", "fedadagrad", "fedyogi", "fedadam", "fedams", "feddyn", "fedacg",
    }  # fmt: skip
    assert {name for name, rule in STRATEGIES.items() if post_processes_mean(rule)} == yes
    assert post_processes_mean(Steps)
    assert not any(map(post_processes_mean, (Inherits, Reads, FedNova)))
