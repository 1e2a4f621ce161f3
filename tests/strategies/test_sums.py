"""Groups of answers summed before they come: the bits of answers that come one by one."""

import pickle

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict

from fedbn_flower.core.ground.wire import SUMS
from strategies import (
    STRATEGIES,
    Extras,
    FedAvg,
    FedMedian,
    FedNova,
    FedSat,
    PseudoGradientStrategy,
    ReplyRefused,
)
from strategies.aggregation.fold import groups
from strategies.partial_sums import GroupSum, can_be_summed, take_sums

from .helpers import OF_MODELS, CannedGrid, ndarrays, record, train

CLIENTS = 21
MODEL = {
    "layer.weight": np.linspace(-1, 1, 60, dtype=np.float32).reshape(5, 12),
    "norm.running_var": np.ones(5, np.float32),
    "norm.num_batches_tracked": np.array(3, np.int64),
}


class HalfSteps(PseudoGradientStrategy):
    """A rule with extras of its own, which it reads anywhere."""

    reads_extras_anywhere = True

    def read_extras(self, answer, round):
        mean = np.concatenate([a.ravel()[:3] for a in answer.arrays.values()])
        return Extras(factor=1 / answer.weight, vectors={"mean": mean})

    def server_step(self, delta, state, round):
        return delta / 2 + float(round.means["mean"][0])


class SummingGrid(CannedGrid):
    """Sums what the nodes answer, by groups, with a rule made as the server's is."""

    def __init__(self, client, make):
        super().__init__(CLIENTS, client)
        self.make = make
        self.carried = 0

    def work(self, messages, timeout):
        for places in groups(len(messages)):
            group = [messages[place] for place in places]
            received = group[0].content
            number = received["config"]["server-round"]
            summed = GroupSum(self.make(), number, ndarrays(received["arrays"]))
            bearer = None
            for message in group:
                reply = self.client(message, message.metadata.dst_node_id)
                content = reply.content
                whole = RecordDict({name: r for name, r in content.items() if name != "arrays"})
                try:
                    summed.add(whole, ndarrays(content["arrays"]))
                except ReplyRefused:
                    yield reply
                    continue
                content = RecordDict({"metrics": content["metrics"]})
                bearer = bearer or content
                yield Message(content, reply_to=message)
            bearer.update(summed.records())
            self.carried += 1


def answer(message, node):
    """Moved weights, some work, a struggle, for SCAFFOLD a change of c_i; node 4 gives what is not finite."""
    rng = np.random.default_rng([node, message.content["config"]["server-round"]])
    sent = ndarrays(message.content["arrays"])
    moved = {
        name: x + rng.normal(size=x.shape).astype(x.dtype) if x.dtype == np.float32 else x + node
        for name, x in sent.items()
    }
    moved["norm.running_var"] = abs(moved["norm.running_var"])
    if node == 4:
        moved["layer.weight"][0, 0] = np.nan
    metrics = {"num-examples": 3 + node, "local-steps": 1 + node % 3, "train-loss": rng.normal()}
    metrics |= {"local-length": 0.1 + node} if "momentum" in message.content else {}
    metrics |= {"start-loss": 1 + node % 5} if message.content["config"].get("start-loss") else {}
    content = RecordDict({"arrays": record(moved), "metrics": MetricRecord(metrics)})
    for name in ("control", "perturbation"):
        if name in message.content:
            further = ndarrays(message.content[name])
            changed = {n: rng.normal(size=a.shape).astype(a.dtype) for n, a in further.items()}
            content[name] = record(changed)
    content["struggle"] = record({"scores": rng.random(3, np.float32)})
    return Message(content, reply_to=message)


def two_rounds(strategy, grid):
    arrays, output = record(MODEL), []
    for server_round in (1, 2):
        arrays, metrics = train(strategy, arrays, grid, server_round)
        report = strategy.phase_report
        output.append((dict(metrics), {k: dict(m) for k, m in report.metrics.items()}, report.failures))
    return {name: a.tobytes() for name, a in ndarrays(arrays).items()}, output


RULES = [*OF_MODELS.values(), FedSat, HalfSteps]
SETTINGS = [{}, {"weighted_by_key": None}, {"clip_update_norm": 0.5}]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        pytest.param(rule, settings, marks=[further] if settings else [])
        for rule in RULES
        for plain in [rule.read_extras is FedAvg.read_extras]
        for further in [pytest.mark.exhaustive if plain else pytest.mark.slow]
        for settings in SETTINGS
    ],
)
def test_the_bits_and_the_report_of_whole_answers(rule, settings):
    """With settings, for each change, of the rules that read more than a model from an answer."""

    def make():
        return rule(min_available_nodes=1, **{"weighted_by_key": "num-examples"} | settings)

    whole = two_rounds(make(), CannedGrid(CLIENTS, answer))
    assert can_be_summed(make())
    taking = make()
    take_sums(taking)
    grid = SummingGrid(answer, make)
    assert two_rounds(taking, grid) == whole
    assert list(whole[1][0][2]) == [4]  # who was refused is refused all the same
    assert grid.carried == 2 * len(groups(CLIENTS))


def test_sums_are_refused_by_who_does_not_ask_for_them():
    """A client that sends a sum of its own could claim any weight."""
    rule = FedAvg(min_available_nodes=1)
    _, output = two_rounds(rule, CannedGrid(2, lambda m, node: answer(m, node) if node else liar(m)))
    assert [list(failures) for *_, failures in output] == [[0]] * 2


def liar(message):
    sent = ndarrays(message.content["arrays"])
    summed = GroupSum(FedAvg(), 1, sent)
    content = RecordDict({"metrics": MetricRecord({"num-examples": 2**50})})
    summed.add(content, {name: x + x.dtype.type(1) for name, x in sent.items()})
    return Message(RecordDict({**content, **summed.records()}), reply_to=message)


def overriding(name):
    return type(
        "Own", (FedAvg,), {name: lambda self, *a, **k: getattr(super(type(self), self), name)(*a, **k)}
    )


@pytest.mark.parametrize(
    "rule",
    [
        FedMedian(),
        FedAvg(train_metrics_aggr_fn=lambda contents, key: MetricRecord()),
        type("Further", (FedNova,), {"read_extras": lambda self, answer, round: Extras()})(),
        *(
            overriding(name)()
            for name in (
                "__init__", "aggregate_train", "configure_train", "_check_and_log_replies",
                "_construct_messages", "new_round", "read_extras",
            )
        ),
    ],
)  # fmt: skip
def test_rules_that_need_every_answer_get_it(rule):
    assert not can_be_summed(rule)


def test_a_grid_may_sum_the_answers_of_all_rules_but_these():
    rules = {name: cls(0.1) if name == "qfedavg" else cls() for name, cls in STRATEGIES.items()}
    needing = "feddisco afl mime fedtan fedproto ifca cfl fedamp fedap fedpac"
    assert [name for name, rule in rules.items() if not can_be_summed(rule)] == needing.split()


def test_a_step_of_ones_own_needs_no_answer():
    assert can_be_summed(overriding("server_step")())


def test_a_rule_serves_several_groups_at_once_and_stays_as_it_was():
    """A process has one rule for all of its groups."""
    rule = FedNova(clip_update_norm=0.5)
    before = pickle.dumps(vars(rule))
    models = [MODEL, {name: x + x.dtype.type(1) for name, x in MODEL.items()}]
    content = RecordDict({"metrics": MetricRecord({"num-examples": 2, "local-steps": 3})})
    together = [GroupSum(rule, 1, model) for model in models]
    for group in together:
        group.add(content, MODEL)
    for group, model in zip(together, models, strict=True):
        alone = GroupSum(FedNova(clip_update_norm=0.5), 1, model)
        alone.add(content, MODEL)
        assert group.records() == alone.records()
    assert pickle.dumps(vars(rule)) == before


def test_one_vector_travels_for_a_group():
    rule = FedAvg()
    summed = GroupSum(rule, 1, MODEL)
    summed.add(RecordDict({"metrics": MetricRecord({"num-examples": 2})}), MODEL)
    sums = summed.records()[SUMS]
    assert {name: array.numpy().shape for name, array in sums.items()} == {
        "parameters": (60,),
        "statistics": (6,),
    }
