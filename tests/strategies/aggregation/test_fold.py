"""The fold over the answers, what a rule is told of its round, and what it is given beside the model."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from strategies import Answer, Extras, FedAvg, PseudoGradientStrategy, Round, setting
from strategies.aggregation.fold import PARAMETERS, STATISTICS, Fold, PartialSum, groups
from strategies.aggregation.named_means import new_mean
from strategies.aggregation.rule_state import RuleState
from strategies.aggregation.vectors import Layout, finite

from ..helpers import CannedGrid, ndarrays, record, train, train_reply

MODEL = {"bn.running_mean": np.zeros(3, np.float32), "w": np.zeros((4, 5), np.float32)}
LAYOUT = Layout(MODEL)
KINDS = [
    "weighted", "median", "trimmed", "krum:2", "multi-krum:2,3", "bulyan:2", "geometric-median",
    "centered-clip:1",
]  # fmt: skip


def answer_of(arrays, weight=1.0):
    return Answer(arrays, weight, MetricRecord(), RecordDict())


def partial_of(kind="weighted", sent=MODEL):
    layout = Layout(sent)
    return PartialSum(finite(sent), layout, partial(new_mean, kind, 0.2))


def draw(count):
    """(arrays, weight, factor, extras) of so many answers."""
    rng = np.random.default_rng(1)
    return [
        (
            {name: rng.normal(size=array.shape).astype(np.float32) for name, array in MODEL.items()},
            float(rng.integers(1, 100)),
            float(rng.uniform(0.5, 2)),
            {"work": rng.uniform(size=2)},
        )
        for _ in range(count)
    ]


def add(into, one):
    arrays, weight, factor, extras = one
    into.add(answer_of(arrays, weight), weight, factor, extras)


def bits(whole):
    return {name: mean.tobytes() for name, mean in whole.means(RuleState()).items()}


# ---- the fold ---------------------------------------------------------------------------------------


def of_scalars(values_by_place, count=0):
    """The mean of scalar answers of weight 1 by their places, in a round of so many messages."""
    sent = {"w": np.zeros(1, np.float32)}
    fold = Fold(lambda: partial_of(sent=sent), count)
    for place, value in values_by_place.items():
        fold.group_of(place).add(answer_of({"w": np.full(1, value, np.float32)}), 1.0, 1.0, {})
    return float(fold.result().means()[PARAMETERS][0])


def test_groups_of_eight_by_hand():
    """In float32, 2^24 + 1 is 2^24: the seven ones of the first group vanish, the eight of the second not."""
    assert of_scalars({0: 2**24} | dict.fromkeys(range(1, 16), 1.0)) == (2**24 + 8) / 16


def test_a_missing_answer_does_not_shift_the_groups():
    """2^24; then 7 ones, and 2^24 + 7 is rounded to 2^24 + 8; then one more, which vanishes."""
    assert of_scalars({0: 2**24} | dict.fromkeys(range(9, 17), 1.0)) == np.float32((2**24 + 8) / 9)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        *(("weighted", missing) for missing in (set(), {0}, set(range(7, 13)), {26})),
        *((kind, {3, 7, 8}) for kind in KINDS),
    ],
)
def test_the_same_bits_in_whichever_process_a_group_is_summed(kind, missing):
    answers = {place: one for place, one in enumerate(draw(27)) if place not in missing}
    fold = Fold(lambda: partial_of(kind), 27)
    for place, one in answers.items():
        add(fold.group_of(place), one)
    in_one_go = bits(fold.result())

    fold, sums = Fold(lambda: partial_of(kind), 27), []
    for places in groups(27):
        here = [place for place in places if place in answers]
        if here:
            sums.append(partial_of(kind))
            for place in here:
                add(sums[-1], answers[place])
            if kind == "weighted":
                sums[-1] = PartialSum.from_records(MODEL, LAYOUT, *sums[-1].to_records())
            fold.put(here[-1], sums[-1])
    assert bits(fold.result()) == in_one_go


def test_groups_by_hand():
    """27 are four groups: three would do, but leave half of two workers idle at the end."""
    assert [list(g) for g in groups(27)] == [
        [*range(6)], [*range(6, 13)], [*range(13, 20)], [*range(20, 27)]
    ]  # fmt: skip
    assert groups(8) == [range(8)]
    assert groups(9) == [range(4), range(4, 9)]
    assert groups(3, size=1) == [range(1), range(1, 2), range(2, 3)]
    assert groups(0) == []


def test_answers_to_other_messages_come_in_groups_after_all_others():
    """Of a round of nine messages: 2^24 and three ones that vanish, five ones, eight of others, and one."""
    assert of_scalars({0: 2**24} | dict.fromkeys(range(1, 18), 1.0), 9) == np.float32(
        np.float32(np.float32(np.float32(2**24) + np.float32(5)) + np.float32(8)) + np.float32(1)
    ) / np.float32(18)


def test_a_robust_mean_has_no_sum_to_send():
    with pytest.raises(TypeError, match="only a weighted mean"):
        partial_of("median").to_records()


def test_a_partial_by_hand():
    """Weights 1 and 3; the factor scales the difference of the parameters, of nothing else."""
    sent = {"w": np.array([10.0]), "bn.running_mean": np.array([1.0])}
    whole = partial_of(sent=sent)
    whole.add(
        answer_of({"w": np.array([12.0]), "bn.running_mean": np.array([3.0])}), 1.0, 0.5, {"k": np.ones(2)}
    )
    whole.add(
        answer_of({"w": np.array([14.0]), "bn.running_mean": np.array([5.0])}), 3.0, 1.0, {"k": np.zeros(2)}
    )
    means = whole.means()
    assert means[PARAMETERS] == pytest.approx([(1 * 0.5 * 2 + 3 * 4) / 4])
    assert means[STATISTICS] == pytest.approx([(1 * 2 + 3 * 4) / 4])
    assert means["k"] == pytest.approx([0.25, 0.25])


def test_a_round_without_answers_has_nothing_to_fold():
    assert Fold(partial_of).result().sums[PARAMETERS].total_weight == 0


# ---- what a rule is told ----------------------------------------------------------------------------


class Curious(PseudoGradientStrategy):
    """Takes half of every difference, and what each client reports as its steps."""

    scale: float = setting(2.0, gt=0, description="of the step")

    def read_extras(self, answer, round):
        return Extras(0.5, {"steps": np.array([float(answer.metrics["local-steps"])])})

    def server_step(self, delta, state, round):
        self.seen = round
        return self.scale * delta


def test_a_round_as_a_rule_sees_it():
    """Two of three clients answer, from 1 to 3 and to 7 with weights 1 and 3; 0.5 of that, times 2: to 6."""
    strategy, x = Curious(), {"w": np.ones(2)}

    def client(message, node):
        return (
            None
            if node == 1
            else train_reply(message, {"w": x["w"] + 2 + 2 * node}, 1 + node, **{"local-steps": node})
        )

    for number in (5, 6):
        grid = CannedGrid(3, client)
        updated, _ = train(strategy, x, grid, number)
        np.testing.assert_allclose(ndarrays(updated)["w"], 1 + (1 * 2 + 3 * 6) / 4)
        round = strategy.seen
        assert (round.number, round.update) == (number, number - 4)
        assert (round.num_nodes, round.num_answers) == (3, 2)
        assert list(round.metrics) == [0, 2]
        assert round.metrics[2]["local-steps"] == 2
        assert round.means["steps"] == pytest.approx([(1 * 0 + 3 * 2) / 4])
        np.testing.assert_array_equal(round.sent["w"], 1.0)


def test_a_round_is_no_number():
    """To be silently never equal to 2 would be a trap."""
    found = Round(2, 2, LAYOUT, MODEL, 3)
    with pytest.raises(TypeError, match="compared with 2: its number is round.number"):
        assert found == 2
    assert found != "2"


def test_differences_are_to_zero_where_the_model_is_not_finite():
    sent = {"mask": np.array([-np.inf, 0.0, np.nan]), "w": np.array([2.0])}
    reference = finite(sent)
    assert reference["mask"].tolist() == [0.0, 0.0, 0.0]
    assert reference["w"] is sent["w"]


# ---- memory -----------------------------------------------------------------------------------------


def most_at_once(strategy):
    """How many answers are kept at most while 40 of them are read."""
    given, most = [], 0

    def stream(messages):
        nonlocal most
        for message in messages:
            reply = train_reply(message, MODEL, 1)
            given.append(weakref.ref(reply.content))
            yield reply
            del reply
            most = max(most, sum(one() is not None for one in given))

    grid = CannedGrid(40, lambda message, node: None)
    messages = list(strategy.configure_train(1, record(MODEL), ConfigRecord(), grid))
    grid.send_and_receive(messages)
    strategy.aggregate_train(1, stream(messages))
    return most


def test_an_answer_is_not_kept_once_it_is_added():
    assert most_at_once(FedAvg()) < 4


def test_it_is_kept_for_those_who_ask():
    assert most_at_once(FedAvg(train_metrics_aggr_fn=lambda records, key: MetricRecord())) == 40


def test_the_sums_of_a_round_are_freed_at_its_end():
    """By reference counts: until the garbage collector comes, a server would hold those of many rounds."""

    class Kept(FedAvg):
        def server_step(self, delta, state, round):
            self.delta = weakref.ref(delta)
            return super().server_step(delta, state, round)

    strategy = Kept()
    gc.disable()
    try:
        assert most_at_once(strategy) < 4
        assert strategy.delta() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("dtype", "wanted"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")]
)
def test_parameters_are_summed_in_float32_unless_they_are_wider_and_statistics_in_float64(dtype, wanted):
    model = {"w": np.ones(2, dtype), "running_mean": np.ones(2, np.float32)}
    assert [vector.dtype for vector in Layout(model).flatten(model)] == [wanted, "float64"]
