"""Every difference that is left between Flower's classes and ours of the same name.

Each test here is named in a row of docs/drop-in.md, and each row names the test that shows it.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.exception import AggregationError

import strategies

from ..helpers import CannedGrid, record
from . import test_differing_replies
from .scenarios import APIS, MODEL, RULES, answer, client, make, phase, run, trained

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "docs" / "drop-in.md"


def default(api, rule, name):
    return inspect.signature(getattr(api, rule)).parameters[name].default


def one_round(strategy, answers, start=MODEL, examples=lambda i: 1):
    """The model after one round in which node i answers ``answers[i]``."""
    given = lambda messages: [answer(m, answers[i], examples(i)) for i, m in enumerate(messages)]  # noqa: E731
    return phase(strategy, given, start, nodes=len(answers))[0]


def test_every_row_names_a_test_and_every_test_has_a_row():
    named = set(re.findall(r"`(test_\w+?)::(test_\w+)`", TABLE.read_text()))
    places = {path.stem: path.relative_to(ROOT) for path in ROOT.glob("tests/strategies/**/test_*.py")}
    for module, test in named:
        place = ".".join(places[module].with_suffix("").parts)
        assert hasattr(import_module(place), test), (module, test)
    here = {
        name for name, one in [*globals().items(), *vars(test_differing_replies).items()] if callable(one)
    }
    unnamed = {name for name in here if name.startswith("test_")} - {test for _, test in named}
    assert unnamed == {"test_every_row_names_a_test_and_every_test_has_a_row"}
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    header, *rows = [line for line in rows if set(line) - set("|- ")]
    assert len(rows) > 25
    for line in rows:
        assert line.count(" | ") == header.count(" | "), line
        assert re.search(r"`test_\w+::test_\w+` \|$", line), line


# ---- defaults and arguments -------------------------------------------------------------------------


def test_defaults_that_differ():
    found = {
        (rule, name): (default(flower, rule, name), default(strategies, rule, name))
        for rule in [*RULES, "FedAdam"]
        for name in inspect.signature(getattr(flower, rule)).parameters
    }
    assert {key: pair for key, pair in found.items() if pair[0] != pair[1]} == {
        ("FedAdagrad", "eta"): (0.1, 0.01),
        ("FedAdam", "eta"): (0.1, 0.01),
        ("FedAvgM", "server_momentum"): (0.0, 0.9),
    }


def test_the_names_a_subclass_must_not_use_are_all_reported():
    """Every public attribute that Flower's class has not, but for the settings, which a subclass may take."""
    ours, theirs = strategies.FedAvg(), flower.FedAvg()
    (output,) = re.findall(r"must not use these names for something else: ([^.]*)\.", TABLE.read_text())
    assert sorted(re.findall(r"`(\w+)`", output)) == sorted(
        name for name in set(dir(ours)) - set(dir(theirs)) if not name.startswith("_")
    )


def test_arguments_of_ours_alone():
    assert strategies.FedAdagrad(eta=0.1, beta_1=0.5, v_init=1e-6).beta_1 == 0.5
    strategies.FedAvg(seed=1, mean="median", trim=0.2, clip_update_norm=1.0, max_weight=10, min_replies=2)
    strategies.FedAvg(weighted_by_key=None, trainable=["w"], tied=[("w", "v")], ask_partitions=True)
    strategies.FedAvg(eta=0.5, momentum=0.9)
    with pytest.raises(TypeError):
        flower.FedAdagrad(beta_1=0.5)
    with pytest.raises(TypeError):
        flower.FedAdagrad(1.0)
    assert strategies.FedAdagrad(0.5).fraction_train == 0.5


@pytest.mark.parametrize(
    ("rule", "arguments", "output"),
    [
        ("FedAvg", {"fraction_train": 1.5}, r"fraction_train=1.5 is not allowed; .* in \[0, 1\]"),
        ("FedAvg", {"min_train_nodes": -1}, "min_train_nodes=-1 is not allowed; .* >= 0"),
        ("FedAdam", {"beta_1": 1.0}, r"beta_1=1.0 is not allowed; expected a number in \[0, 1\)"),
        ("FedAvgM", {"server_learning_rate": 0.0}, "server_learning_rate=0.0 is not allowed"),
        ("FedProx", {"proximal_mu": -0.1}, "proximal_mu=-0.1 is not allowed"),
    ],
)
def test_ranges_are_checked(rule, arguments, output):
    getattr(flower, rule)(**arguments)
    with pytest.raises(ValueError, match=output):
        getattr(strategies, rule)(**arguments)


def test_which_class_is_whose():
    """FedAvgM is no FedAvg of ours, an adaptive rule no FedOpt of Flower's; all are FedAvgs of Flower's."""
    assert issubclass(flower.FedAvgM, flower.FedAvg)
    assert not issubclass(strategies.FedAvgM, strategies.FedAvg)
    assert issubclass(flower.FedAdam, flower.fedopt.FedOpt)
    assert not issubclass(strategies.FedAdam, flower.fedopt.FedOpt)
    assert all(issubclass(getattr(strategies, rule), flower.FedAvg) for rule in RULES)


def test_where_the_moments_are():
    theirs, ours = (make(api, "FedAdagrad") for api in APIS)
    for strategy in (theirs, ours):
        one_round(strategy, [trained(MODEL, i) for i in range(2)])
    flat = np.concatenate([theirs.v_t[name].ravel() for name in sorted(MODEL)])
    np.testing.assert_allclose(ours.rule_state.vectors["v"], flat, rtol=1e-5)
    assert not hasattr(ours, "v_t")


# ---- the rules --------------------------------------------------------------------------------------

START = {"w": np.zeros(2)}
ANSWERS = [{"w": np.array([1.0, -0.5])}] * 2  # so D is (1, -0.5)


def test_fedyogi_corrects_the_bias_of_its_start():
    """First round: m^ = D and v^ = D^2; Flower's m = 0.1 D, v = 0.01 D^2, by hand."""
    ours = one_round(strategies.FedYogi(eta=0.1, tau=0.01), ANSWERS, START)["w"]
    np.testing.assert_allclose(ours, 0.1 * np.array([1 / 1.01, -0.5 / 0.51]), rtol=1e-6)
    theirs = one_round(flower.FedYogi(eta=0.1, tau=0.01), ANSWERS, START)["w"]
    np.testing.assert_allclose(theirs, 0.1 * np.array([0.1 / 0.11, -0.05 / 0.06]), rtol=1e-6)


def test_fedadam_corrects_by_the_number_of_the_update():
    """First round: ours as FedYogi's; Flower takes the powers at t + 1 = 2, and tau beside the raw v."""
    ours = one_round(strategies.FedAdam(eta=0.1, tau=0.01), ANSWERS, START)["w"]
    np.testing.assert_allclose(ours, 0.1 * np.array([1 / 1.01, -0.5 / 0.51]), rtol=1e-6)
    theirs = one_round(flower.FedAdam(eta=0.1, tau=0.01), ANSWERS, START)["w"]
    eta = 0.1 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)
    np.testing.assert_allclose(theirs, eta * np.array([0.1 / 0.11, -0.05 / 0.06]), rtol=1e-6)


def test_the_trimmed_mean_leaves_out_one_at_least():
    """Of 4 answers a share of 0.2 is less than one."""
    values = [{"w": np.array([v])} for v in (0.0, 1.0, 2.0, 100.0)]
    start = {"w": np.zeros(1)}
    theirs, ours = (one_round(api.FedTrimmedAvg(beta=0.2), values, start)["w"] for api in APIS)
    assert theirs == pytest.approx(103 / 4)
    assert ours == pytest.approx(1.5)


def test_fedavgm_steps_from_the_model_that_was_sent():
    """Flower's goes on from its own last result, whatever the strategy is given to send."""
    found = []
    for api in APIS:
        strategy = api.FedAvgM(server_momentum=0.0, server_learning_rate=0.5)
        one_round(strategy, [{"w": np.array([2.0])}] * 2, {"w": np.zeros(1)})  # gives 1
        found.append(one_round(strategy, [{"w": np.array([12.0])}] * 2, {"w": np.full(1, 10.0)})["w"])
    assert found[0] == pytest.approx(1 + 0.5 * 11)
    assert found[1] == pytest.approx(10 + 0.5 * 2)


def test_without_a_model_that_was_sent():
    """Empty initial arrays: FedAvg takes the mean; a rule with a step has nothing to step from."""

    def bringing(message, node):
        return answer(message, MODEL, 1)

    with pytest.raises(ValueError, match="zip"):
        run(make(flower, "FedAvgM"), arrays={}, work=bringing)
    with pytest.raises(AggregationError, match="there is none: call configure_train with a model"):
        run(make(strategies, "FedAvgM"), arrays={}, work=bringing)


# ---- what is no weight ------------------------------------------------------------------------------


def test_integers_stay_integers():
    """(3 + 4) / 2 = 3.5 is rounded to the even 4; booleans likewise; Flower's become floats."""
    start = {"n": np.array([0, 0]), "on": np.array([False, True])}
    values = [
        {"n": np.array([3, 1]), "on": np.array([True, True])},
        {"n": np.array([4, 1]), "on": np.array([True, False])},
    ]
    theirs, ours = (one_round(api.FedAvg(), values, start) for api in APIS)
    assert (theirs["n"].dtype, theirs["on"].dtype) == (np.float64, np.float64)
    assert (ours["n"].dtype, ours["on"].dtype) == (np.int64, np.bool_)
    np.testing.assert_array_equal(ours["n"], [4, 1])
    np.testing.assert_array_equal(ours["on"], [True, False])


def test_a_large_integer_constant_is_exact():
    constant = {"id": np.array([2**53 + 1, -(2**62) - 1])}
    theirs, ours = (one_round(api.FedAvg(), [constant] * 3, constant)["id"] for api in APIS)
    assert theirs.astype(np.int64).tolist() != constant["id"].tolist()
    assert ours.tolist() == constant["id"].tolist()


def test_the_model_keeps_its_dtype():
    """Answers in float64 to a model in float32, as privacy mods give them."""
    wide = [{"w": np.array([1.5, 2.5])}] * 2
    theirs, ours = (one_round(api.FedAvg(), wide, {"w": np.zeros(2, np.float32)})["w"] for api in APIS)
    assert (theirs.dtype, ours.dtype) == (np.float64, np.float32)
    np.testing.assert_array_equal(ours, theirs)


# ---- sampling ---------------------------------------------------------------------------------------


def sampled(strategy, nodes, server_round=1):
    grid = CannedGrid(nodes, client)
    messages = strategy.configure_train(server_round, record(MODEL), ConfigRecord(), grid)
    return [message.metadata.dst_node_id for message in messages]


def test_sampling_depends_on_the_seed():
    ours = [sampled(strategies.FedAvg(fraction_train=0.1, seed=0), 100) for _ in range(3)]
    theirs = [sampled(flower.FedAvg(fraction_train=0.1), 100) for _ in range(3)]
    assert ours[0] == ours[1] == ours[2] == sorted(ours[0])
    assert not theirs[0] == theirs[1] == theirs[2]


def test_a_share_is_not_lost_to_rounding():
    """0.29 * 100 is 28.999999999999996 in binary."""
    assert [len(sampled(api.FedAvg(fraction_train=0.29), 100)) for api in APIS] == [28, 29]


def test_a_round_asks_one_node_at_least():
    few = {"fraction_train": 0.1, "min_train_nodes": 0, "min_available_nodes": 0}
    assert [len(sampled(api.FedAvg(**few), 3)) for api in APIS] == [0, 1]


def test_waiting_for_nodes_ends(monkeypatch):
    strategy = strategies.FedAvg(min_available_nodes=3, node_timeout=0.0)
    with pytest.raises(strategies.TooFewNodes, match="waited 0 s for 3 nodes"):
        sampled(strategy, 2)

    class StillWaiting(Exception):
        """In place of the second that it sleeps, for ever."""

    def sleep(seconds):
        raise StillWaiting

    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", sleep)
    with pytest.raises(StillWaiting):
        sampled(flower.FedAvg(min_available_nodes=3), 2)


class Growing(CannedGrid):
    """One node, and three more when it is asked for the third time."""

    asked = 0

    def get_node_ids(self):
        self.asked += 1
        return range(1 if self.asked < 3 else 4)


def test_the_share_is_of_the_nodes_that_were_waited_for(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", lambda seconds: None)
    counts = []
    for api in APIS:
        grid, strategy = Growing(4, client, tells_partition=False), api.FedAvg(min_available_nodes=4)
        counts.append(len(list(strategy.configure_train(1, record(MODEL), ConfigRecord(), grid))))
    assert counts == [2, 4]
