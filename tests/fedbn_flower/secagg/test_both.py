"""One sum of what nodes evaluate and train: the bits of two sums, and half of the exchanges."""

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from fedbn_flower.core.ground.wire import EVALUATION
from fedbn_flower.core.private import with_content
from fedbn_flower.runtime.grid import node_context, partition_of
from fedbn_flower.secagg import words
from fedbn_flower.secagg.extension import SecAgg
from fedbn_flower.secagg.plan import Plan
from fedbn_flower.site.adapter import answer_all, round_of

from ..server.test_one_exchange import Nodes, outcome
from ..supernodes import run_app
from .keyed import node_configs

KEYS = {
    "client": "silobn",
    "clip_update_norm": 1.0,
    "num_clients": 4,
    "partition": "dirichlet:1",
    "rounds": 3,
}


class Warm(Nodes):
    """SuperNodes that keep what they have in RAM. All that they are sent, and answer, is in ``carried``.

    ``changed`` gets each message and each reply with its message, and returns what goes on; None loses it.
    """

    own: ClassVar[dict[int, dict[str, str]]] = {}
    """What sites have in their node configs."""

    def __init__(self, config, state_dir, changed=lambda message, reply: message if reply is None else reply):
        super().__init__(config, state_dir)
        self.contexts, self.changed, self.carried = {}, changed, []

    def work(self, messages, timeout):
        self.exchanges.append({message.metadata.message_type for message in messages})
        for message in messages:
            partition = partition_of(message)
            new = node_context(partition, self.num_clients, self.run_config)
            context = self.contexts.setdefault(partition, new)
            context.node_config |= {"state-dir": str(self.state_dir), **self.own.get(partition, {})}
            asked = self.changed(message, None)
            for reply in answer_all([asked], [context]) if asked else ():
                if found := self.changed(asked, reply):
                    self.carried.append((asked, found))
                    yield found


@pytest.fixture
def done(configured, tmp_path, pictures_not_drawn):
    """Runs a configuration; returns its grid and what it found."""

    def run(name, changed=lambda message, reply: message if reply is None else reply, nodes=Warm, **keys):
        config = configured(**{**KEYS, **keys}, run_dir=str(tmp_path / name))
        grid = nodes(config, tmp_path / f"{name}-state", changed)
        run_app(config, grid)
        return grid, outcome(tmp_path / name)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"val_fraction": 0.2, "patience": 2, "metrics": "f1,auroc"},
        {"weighting": "num-examples", "max_num_examples": 1000, "eval_data": "local", "evaluate_every": 2},
    ],
    ids=["metrics", "sizes"],
)
def test_one_sum_of_both_has_the_bits_of_two(keys, done):
    """Masked or not, in the model and in all metrics."""
    _, apart = done("apart", secagg="plain", evaluate_with_training="off", **keys)
    for mode in ("plain", "on"):
        grid, together = done(mode, secagg=mode, **keys)
        for one in (apart, together):
            one["summary"].pop("extensions", None)
        assert together == apart
    assert all(
        context.state.keys() <= {"secagg-next", "secagg-session"} for context in grid.contexts.values()
    )


@pytest.mark.parametrize("signed", [False, True])
def test_a_round_is_two_exchanges(signed, done, tmp_path):
    """To train and evaluate, and to unmask, with which the next sum is begun; sites with keys sign between
    them. Nothing but one masked vector leaves a client for both."""

    class Owned(Warm):
        own = dict(enumerate(node_configs(tmp_path / "keys", 4))) if signed else {}

    grid, found = done("run", secagg="on", nodes=Owned)
    assert [row["replies"] for row in found["metrics"]] == ["4"] * 3
    train, step = {"train"}, {"evaluate"}
    asked = [one for one in grid.exchanges if one <= train | step]
    unmasked = [step] * (1 + signed)
    assert asked == [step, step] + [train, *unmasked] * 3 + [step, *unmasked]
    both = [reply for asked, reply in grid.carried if "evaluation" in asked.content]
    assert len(both) == 2 * 4
    for reply in both:
        numbers = {name: dict(record) for name, record in reply.content.metric_records.items()}
        assert numbers == {"metrics": {"num-examples": 1}, "evaluation.metrics": {"num-examples": 1}}
        arrays = {name: list(record) for name, record in reply.content.array_records.items()}
        said = ["keys", "public", "partners", "heard"] if signed else ["keys"]
        assert arrays == {"arrays": [], "compressed": ["vector"], "secagg": said}


@pytest.mark.slow
def test_who_fails_in_a_half_or_is_lost(done, tmp_path):
    """A client that cannot evaluate trains, one that cannot train or is lost lacks in both. The others have
    their sums, in the bits of those without masks."""
    (tmp_path / "clients.py").write_text(FAILING)

    def changed(message, reply):
        round_three = round_of(message) == 3 and message.metadata.message_type == "train"
        lost = round_three and partition_of(message) == 3
        return None if lost else message if reply is None else reply

    keys = {"client": f"{tmp_path / 'clients.py'}:Fails", "secagg_min": 2, "round_timeout": 1}
    _, plain = done("plain", changed, secagg="plain", **keys)
    _, masked = done("masked", changed, secagg="on", **keys)
    for one in (plain, masked):
        one["summary"].pop("extensions")
    assert masked["model"] == plain["model"]
    assert masked["metrics"] == plain["metrics"]
    rows = [(row["round"], row["phase"], row["partition"]) for row in masked["failures"]]
    assert rows == [(row["round"], row["phase"], row["partition"]) for row in plain["failures"]]
    assert rows == [
        ("1", "evaluate", "0"), ("1", "evaluate", "2"), ("2", "train", "2"),
        ("2", "evaluate", "3"), ("3", "train", "3"),
    ]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("look", "replies", "failures"),
    [(4, ["4"] * 3, []), (5, ["4", "3", "4"], [("1", "evaluate", "3")])],
    ids=["joins", "leaves"],
)
def test_who_joins_or_leaves_between_the_evaluation_s_messages_and_the_training_s(
    look, replies, failures, done
):
    """A client that is not asked to evaluate trains; one that is not asked to train does neither."""

    class Coming(Warm):
        looks = 0

        def get_node_ids(self):
            self.looks += 1
            nodes = list(super().get_node_ids())
            return nodes[:-1] if self.looks == look else nodes

    plain, masked = (done(mode, nodes=Coming, secagg=mode)[1] for mode in ("plain", "on"))
    for name in ("metrics", "failures", "model"):
        assert masked[name] == plain[name]
    assert [row["replies"] for row in masked["metrics"]] == replies
    assert [(row["round"], row["phase"], row["partition"]) for row in masked["failures"]] == failures


FAILING = """
from fedbn_flower.clients.policies.partial import SiloBNClient

class Fails(SiloBNClient):
    def evaluate(self, parameters, config):
        if self.task.seed[-1] == 0 and config["server-round"] == 1:
            raise ValueError("no evaluation")
        return super().evaluate(parameters, config)

    def fit(self, parameters, config):
        if self.task.seed[-1] == 2 and config["server-round"] == 2:
            raise ValueError("no training")
        return super().fit(parameters, config)
"""


def test_what_is_evaluated_leaves_only_where_the_server_has_a_place_for_it(done):
    """A client that is told of no place sends nothing of it, and one that evaluates nothing zeros."""
    vectors = {}

    def changed(message, reply):
        partition, content = partition_of(message), message.content
        if message.metadata.message_type == "train" and round_of(message) == 2:
            if reply is None and partition in (0, 1):
                config = ConfigRecord({**content["config"], words.BOTH: partition == 1})
                left = {
                    name: record for name, record in content.items() if name != EVALUATION or not partition
                }
                message = with_content(message, RecordDict({**left, "config": config}), "train")
            elif reply is not None:
                vectors[partition] = reply.content["compressed"]["vector"].numpy()
                vectors["plan"] = Plan.heard(content["config"])
        return message if reply is None else reply

    done("run", changed, secagg="plain")
    plan = vectors.pop("plan")
    nothing = plan.evaluated(0, {}, {})
    assert vectors[1].size == vectors[2].size == vectors[0].size + nothing.size
    assert np.array_equal(vectors[1][-nothing.size :], nothing)
    assert not np.array_equal(vectors[2][-nothing.size :], nothing)


def test_an_evaluation_of_nobody_is_of_the_round_before_and_has_no_sum(caplog):
    masked = object.__new__(SecAgg)
    part = masked._evaluated(SimpleNamespace(number=5), SimpleNamespace(weight=0.0))
    assert (part.found, part.why) == (None, "secagg: there is no sum: no client has any example")
    assert caplog.messages == [f"round 4, evaluate: {part.why}"]
