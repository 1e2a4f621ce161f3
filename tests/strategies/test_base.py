"""What every rule inherits: what is stepped, who is sampled, which answers count."""

import inspect
import logging

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import AggregationError
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import STRATEGIES, FedAdam, FedAvg, FedYogi
from strategies.nodes import sample
from strategies.replies import NO_ANSWER
from strategies.vectors import Layout

from .helpers import CannedGrid, ndarrays, one_round, record, train_reply

MODEL = {
    "layer.weight": np.ones((2, 3), np.float32),
    "downsample.1.weight": np.ones(3, np.float32),
    "downsample.1.running_mean": np.zeros(3, np.float32),
    "downsample.1.running_var": np.ones(3, np.float32),
    "downsample.1.num_batches_tracked": np.array(10, np.int64),
}


def moved(amount, batches=20):
    new = {name: array + np.asarray(amount, array.dtype) for name, array in MODEL.items() if array.ndim}
    return new | {"downsample.1.num_batches_tracked": np.array(batches, np.int64)}


@pytest.mark.parametrize("rule", STRATEGIES.values())
def test_statistics_are_averaged_and_never_stepped(rule):
    """Flower's FedYogi at eta 0.1 steps running_var below zero; here it is the clients' mean exactly."""
    strategy, arrays = rule(**({"eta": 0.1} if hasattr(rule, "eta") else {})), dict(MODEL)
    mean = 0.04 if rule.weighs_alike else 0.05
    for t in range(1, 6):
        models = [arrays | {"downsample.1.running_var": np.full(3, v, np.float32)} for v in (0.02, 0.06)]
        arrays = one_round(strategy, arrays, models, [1, 3], t)
        np.testing.assert_allclose(arrays["downsample.1.running_var"], mean, rtol=1e-6)
        np.testing.assert_array_equal(arrays["layer.weight"], MODEL["layer.weight"])


def test_flowers_fedyogi_makes_the_variance_negative():
    """The fault that the test above guards against is real in the installed Flower."""
    strategy, arrays = flower.FedYogi(eta=0.1), {"bn.running_var": np.full(3, 0.1, np.float32)}
    target = {"bn.running_var": np.full(3, 0.01, np.float32)}
    lowest = 1.0
    for t in range(1, 6):
        grid = CannedGrid(2, lambda m, i: train_reply(m, target))
        messages = strategy.configure_train(t, record(arrays), ConfigRecord(), grid)
        arrays = ndarrays(strategy.aggregate_train(t, grid.send_and_receive(messages))[0])
        lowest = min(lowest, arrays["bn.running_var"].min())
    assert lowest < 0


@pytest.mark.parametrize("rule", STRATEGIES.values())
def test_names_order_shapes_and_dtypes_stay(rule):
    got = one_round(rule(), MODEL, [moved(0.5), moved(0.25, batches=23)], [1, 1])
    assert list(got) == list(MODEL)
    assert {n: (a.shape, a.dtype) for n, a in got.items()} == {
        n: (a.shape, a.dtype) for n, a in MODEL.items()
    }
    assert got["downsample.1.num_batches_tracked"] == 22  # the mean 21.5, rounded to even


def test_half_and_double_precision_keep_their_dtype():
    model = {"h": np.ones(2, np.float16), "d": np.ones(2, np.float64)}
    got = one_round(FedAvg(), model, [{n: a + a.dtype.type(1) for n, a in model.items()}] * 2, [1, 1])
    assert got["h"].dtype == np.float16
    assert got["d"].dtype == np.float64
    np.testing.assert_array_equal(got["d"], 2.0)


def test_the_names_to_step_can_be_given():
    strategy = FedYogi(trainable=["layer.weight"])
    got = one_round(strategy, MODEL, [moved(0.5)] * 2, [1, 1])
    np.testing.assert_allclose(got["downsample.1.weight"], 1.5)  # averaged
    assert not np.allclose(got["layer.weight"], 1.5)  # stepped
    with pytest.raises(ValueError, match="nosuch"):
        one_round(FedYogi(trainable=["nosuch"]), MODEL, [moved(0.5)] * 2, [1, 1])


def test_weights_by_num_examples_or_uniform():
    models = [moved(0.0), moved(1.0)]
    weighted = one_round(FedAvg(), MODEL, models, [3, 1])
    uniform = one_round(FedAvg(weighted_by_key=None), MODEL, models, [3, 1])
    np.testing.assert_allclose(weighted["layer.weight"], 1.25)
    np.testing.assert_allclose(uniform["layer.weight"], 1.5)


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(4)), rule=st.sampled_from(sorted(STRATEGIES)))
def test_the_order_of_replies_does_not_change_a_bit(order, rule):
    rng = np.random.default_rng(0)
    models = [{"w": rng.normal(size=50).astype(np.float32)} for _ in range(4)]

    def result(permutation):
        strategy = STRATEGIES[rule]()
        grid = CannedGrid(4, lambda m, i: train_reply(m, models[i], i + 1))
        grid.order = lambda replies: [replies[i] for i in permutation]
        start = {"w": np.zeros(50, np.float32)}
        messages = strategy.configure_train(1, record(start), ConfigRecord(), grid)
        return ndarrays(strategy.aggregate_train(1, grid.send_and_receive(messages))[0])["w"]

    np.testing.assert_array_equal(result(order), result(range(4)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 10**4), min_size=1, max_size=6))
def test_equal_models_average_to_themselves(weights):
    """The weights sum to one, whatever they are."""
    model = {"w": np.linspace(-3, 3, 7, dtype=np.float32)}
    start = {"w": np.zeros(7, np.float32)}
    got = one_round(FedAvg(min_train_nodes=1, min_available_nodes=1), start, [model] * len(weights), weights)
    np.testing.assert_allclose(got["w"], model["w"], rtol=1e-6)


def test_a_layout_flattens_and_restores_a_model():
    layout = Layout(MODEL)
    assert layout.parameters == ["downsample.1.weight", "layer.weight"]
    restored = ndarrays(layout.unflatten(*layout.flatten(MODEL)))
    for name, array in MODEL.items():
        np.testing.assert_array_equal(restored[name], array)


# ---- sampling ---------------------------------------------------------------------------------------


def sampled(strategy, grid, server_round=1, phase="train"):
    configure = getattr(strategy, f"configure_{phase}")
    messages = configure(server_round, record({"w": np.zeros(1, np.float32)}), ConfigRecord(), grid)
    return [m.metadata.dst_node_id for m in messages]


def test_sampling_depends_on_seed_and_round_alone():
    grid = CannedGrid(20, lambda m, i: None)
    draws = [sampled(FedAvg(fraction_train=0.25, seed=s), grid, r) for s in (0, 1) for r in (1, 2)]
    again = [sampled(FedAvg(fraction_train=0.25, seed=s), grid, r) for s in (0, 1) for r in (1, 2)]
    assert draws == again
    assert len({tuple(d) for d in draws}) == 4
    assert all(len(d) == 5 and d == sorted(d) for d in draws)


@given(n=st.integers(1, 300), percent=st.integers(0, 100))
def test_the_sample_has_the_size_asked_for(n, percent):
    chosen = sample(list(range(n)), percent / 100, 1, (0,))
    assert len(chosen) == max(1, n * percent // 100)
    assert len(set(chosen)) == len(chosen)


def test_nodes_that_tell_no_partition_are_ordered_by_node_id():
    assert sampled(FedAvg(), CannedGrid(5, lambda m, i: None, tells_partition=False)) == [0, 1, 2, 3, 4]


def test_nodes_are_ordered_by_the_partition_they_tell():
    class Shuffled(CannedGrid):
        def work(self, messages, timeout):
            for message in messages:
                partition = 4 - message.metadata.dst_node_id
                answer = RecordDict({"partition": ConfigRecord({"partition-id": partition})})
                yield Message(answer, reply_to=message)

    assert sampled(FedAvg(ask_partitions=True), Shuffled(5, lambda m, i: None)) == [4, 3, 2, 1, 0]


def test_waiting_for_nodes_is_bounded():
    told = r"waited 0 s for 3 nodes \(round 1, train: min_available_nodes\); 2 connected"
    with pytest.raises(TimeoutError, match=told):
        sampled(FedAvg(min_available_nodes=3, node_timeout=0.0), CannedGrid(2, lambda m, i: None))


def test_a_fraction_of_zero_skips_the_phase():
    strategy = FedAvg(fraction_evaluate=0.0)
    assert sampled(strategy, CannedGrid(3, lambda m, i: None), phase="evaluate") == []
    assert strategy.aggregate_evaluate(1, []) is None
    assert not strategy.phase_report.failures


# ---- answers that cannot be used --------------------------------------------------------------------


def content(arrays=None, metrics=None):
    return RecordDict(
        {
            "arrays": record(arrays if arrays is not None else moved(0.5)),
            "metrics": MetricRecord(metrics if metrics is not None else {"num-examples": 1}),
        }
    )


def truncated():
    arrays = record(moved(0.5))
    whole = arrays["layer.weight"]
    arrays["layer.weight"] = Array(whole.dtype, whole.shape, whole.stype, whole.data[:-5])
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})


BAD = {
    "nan": content(moved(np.nan)),
    "infinite": content(moved(0.5) | {"layer.weight": np.full((2, 3), np.inf, np.float32)}),
    "absurd": content(moved(0.5) | {"layer.weight": np.full((2, 3), 1e38, np.float32)}),
    "missing name": content({"layer.weight": MODEL["layer.weight"]}),
    "extra name": content(moved(0.5) | {"more": np.ones(1, np.float32)}),
    "shape": content(moved(0.5) | {"layer.weight": np.ones((3, 2), np.float32)}),
    "integer dtype": content(moved(0.5) | {"layer.weight": np.ones((2, 3), np.int64)}),
    "truncated": truncated(),
    "zero examples": content(metrics={"num-examples": 0}),
    "negative examples": content(metrics={"num-examples": -3}),
    "nan examples": content(metrics={"num-examples": float("nan")}),
    "huge examples": content(metrics={"num-examples": 1e300}),
    "list of examples": content(metrics={"num-examples": [1, 2]}),
    "no examples": content(metrics={"loss": 1.0}),
    "no metrics": RecordDict({"arrays": record(moved(0.5))}),
    "no arrays": RecordDict({"metrics": MetricRecord({"num-examples": 1})}),
    "empty": RecordDict(),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_is_dropped_and_the_round_goes_on(bad, caplog):
    def client(message, partition):
        return Message(BAD[bad], reply_to=message) if partition == 1 else train_reply(message, moved(0.5))

    strategy, grid = FedAvg(), CannedGrid(3, client)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        for server_round in (1, 2):
            messages = strategy.configure_train(server_round, record(MODEL), ConfigRecord(), grid)
            arrays, _ = strategy.aggregate_train(server_round, grid.send_and_receive(messages))
            np.testing.assert_allclose(ndarrays(arrays)["layer.weight"], 1.5)
            assert list(strategy.phase_report.failures) == [1]
            assert list(strategy.phase_report.metrics) == [0, 2]
    said = [r.message for r in caplog.records if "node 1 dropped" in r.message]
    assert [line.split(":")[0] for line in said] == ["round 1, train", "round 2, train"]  # in every round


def test_if_no_answer_is_left_the_model_and_the_rule_stay():
    strategy = FedAdam()
    before = one_round(strategy, MODEL, [moved(0.5)] * 2, [1, 1])
    state = {name: vector.copy() for name, vector in strategy.rule_state.vectors.items()}
    grid = CannedGrid(2, lambda m, i: Message(Error(0, "broken"), reply_to=m))
    messages = strategy.configure_train(2, record(before), ConfigRecord(), grid)
    assert strategy.aggregate_train(2, grid.send_and_receive(messages)) == (None, None)
    assert strategy.phase_report.failures == {0: "broken", 1: "broken"}
    assert strategy.rule_state.updates == 1
    for name, vector in state.items():
        np.testing.assert_array_equal(strategy.rule_state.vectors[name], vector)


def test_an_answer_that_never_came_is_counted():
    strategy, grid = FedAvg(), CannedGrid(3, lambda m, i: train_reply(m, moved(0.5)))
    grid.order = lambda replies: replies[1:]
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert strategy.phase_report.failures == {0: "no answer came, or the app left it out"}


def test_an_error_from_flower_itself_is_told_by_the_message_it_answers():
    """Flower answers for a dead node with its own node id, 1."""

    def client(message, partition):
        if partition != 1:
            return train_reply(message, moved(0.5))
        reply = Message(Error(5, "Node Unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return reply

    strategy, grid = FedAvg(), CannedGrid(3, client)
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert strategy.phase_report.failures == {1: "Node Unavailable"}


def test_a_second_answer_to_the_same_message_does_not_count():
    strategy = FedAvg()
    grid = CannedGrid(2, lambda m, i: train_reply(m, moved(float(i))))
    grid.order = lambda replies: [replies[0], replies[1], replies[1], replies[1]]
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
    np.testing.assert_allclose(ndarrays(arrays)["layer.weight"], 1.5)


def test_metrics_are_averaged_over_the_clients_that_report_them():
    metrics = [{"loss": 1.0}, {"loss": 4.0, "extra": 7.0}]
    grid = CannedGrid(2, lambda m, i: train_reply(m, moved(0.0), [3, 1][i], **metrics[i]))
    strategy = FedAvg()
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    _, mean = strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert dict(mean) == {"loss": 1.75, "extra": 7.0, "local-steps": 5.0}


# ---- a drop-in for Flower's -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["FedAvg", "FedAvgM", "FedAdagrad", "FedYogi", "FedAdam"])
def test_takes_every_argument_of_flowers_rule(name):
    import strategies

    theirs = inspect.signature(getattr(flower, name)).parameters
    ours = inspect.signature(getattr(strategies, name)).parameters
    assert theirs.keys() <= ours.keys()
    positional = [p.name for p in theirs.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p for p in ours if ours[p].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD][
        : len(positional)
    ] == positional


def test_runs_under_flowers_own_start():
    """Flower's loop, config and evaluate_fn; the clients know nothing of this project."""
    seen = []

    def client(message, partition):
        if message.metadata.message_type == "evaluate":
            return Message(
                RecordDict({"metrics": MetricRecord({"num-examples": 2, "loss": 0.5})}), reply_to=message
            )
        seen.append(message.content["config"]["server-round"])
        sent = ndarrays(message.content["arrays"])
        return train_reply(message, {n: a + a.dtype.type(1) for n, a in sent.items()}, 2)

    grid = CannedGrid(3, client, tells_partition=False)
    evaluated = []
    result = FedAvg(fraction_train=0.7, min_train_nodes=2).start(
        grid=grid,
        initial_arrays=record({"w": np.zeros(2, np.float32)}),
        num_rounds=3,
        evaluate_fn=lambda r, arrays: evaluated.append(r),
    )
    np.testing.assert_allclose(result.arrays["w"].numpy(), 3.0)
    assert seen == [1, 1, 2, 2, 3, 3]
    assert evaluated == [0, 1, 2, 3]
    assert [m["loss"] for m in result.evaluate_metrics_clientapp.values()] == [0.5] * 3


@pytest.mark.parametrize("step", [0.5, np.float32(0.5), np.ones(1, np.float32), np.ones(10, np.float32)])
def test_a_step_of_another_shape_ends_the_run(step):
    class Odd(FedAvg):
        def server_step(self, delta, state, round):
            return step

    with pytest.raises(AggregationError, match=r"Odd.server_step gave shape .*, expected \(9,\)"):
        one_round(Odd(), MODEL, [moved(0.5)] * 2, [1, 1])


@pytest.mark.parametrize("lazily", [False, True])
def test_a_reply_is_known_by_its_message_even_if_that_is_sent_as_replies_are_asked_for(lazily):
    """Replies may be a generator that sends: an error of Flower's own, and a lost answer, are told."""

    def client(message, partition):
        if partition == 2:
            return None
        if partition != 1:
            return train_reply(message, moved(0.5))
        reply = Message(Error(5, "Node Unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1_000
        return reply

    strategy, grid = FedAvg(), CannedGrid(4, client)
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    sending = (reply for _ in [0] for reply in grid.send_and_receive(messages))
    strategy.aggregate_train(1, sending if lazily else grid.send_and_receive(messages))
    assert list(strategy.phase_report.metrics) == [0, 3]
    assert strategy.phase_report.failures == {1: "Node Unavailable", 2: NO_ANSWER}
