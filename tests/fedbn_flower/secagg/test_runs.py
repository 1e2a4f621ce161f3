"""Runs with secure aggregation: the same bits as the sum of the same integers, whoever is lost on the way."""

from itertools import chain, combinations

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.runtime.grid import partition_of
from fedbn_flower.secagg.answers import config_bytes
from fedbn_flower.secagg.words import ADVERTISE, SECAGG, SHARE, UNMASK, UPCOMING

from .grids import STEPS, Lossy, run_on


def subsets(of):
    return chain.from_iterable(combinations(of, n) for n in range(len(of) + 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "in_turn"),
    [
        *((step, True) for step in STEPS),
        *(pytest.param(s, False, marks=pytest.mark.exhaustive) for s in STEPS),
    ],
)
def test_whoever_is_lost_in_a_step_the_sum_is_that_of_the_others(settings, plain_model, step, in_turn):
    """Subsets of five clients; three shares give a secret, and a sum is of three clients at least.

    In turn each subset is lost in one of the steps, and in each step one of each size.
    """
    of_size = [0] * 6
    for lost in subsets(range(5)):
        number, of_size[len(lost)] = of_size[len(lost)], of_size[len(lost)] + 1
        if in_turn and len(lost) % 5 and number % len(STEPS) != STEPS.index(step):
            continue
        answered = set(range(5)) - set(lost if step != UNMASK else ())
        grid = Lossy(settings("on"), {step: lost})
        if len(lost) > 2:
            with pytest.raises(RunFailed, match="the model was never updated; .*secagg: "):
                run_on(settings("on"), grid)
            continue
        results, model = run_on(settings("on"), grid)
        assert model == plain_model(*sorted(set(range(5)) - answered)), (step, lost)
        assert set(results[0].train.metrics) == answered
        assert set(results[0].train.failures) == set(range(5)) - answered


@pytest.mark.slow
def test_six_of_twenty_clients_are_gone(settings):
    """In all four steps; as many shares as the defaults ask for."""
    keys = {"num_clients": 20, "secagg_threshold": 0, "fraction_evaluate": 0.0}
    config, plain = settings("on", **keys), settings("plain", **keys)
    lost = {ADVERTISE: range(2), SHARE: range(2, 4), "train": (4,), UNMASK: (5,)}
    _, model = run_on(config, Lossy(config, lost))
    assert run_on(plain, Lossy(plain, {"train": range(5)}))[1] == model


WAYS = {
    "shared statistics": {"client": "shared", "model": "mlp-bn"},
    "silobn": {"client": "silobn", "model": "mlp-bn"},
    "equal weights": {"weighting": "uniform"},
    "a sample": {"fraction_train": 0.6, "fraction_evaluate": 0.6},
    "evaluated after training": {"eval_model": "local"},
    "two clients": {"num_clients": 2, "secagg_min": 2, "secagg_threshold": 2},
    "64 bits": {"secagg_bits": 30},
    "further metrics": {"metrics": "auroc"},
    "frozen": {"freeze": "1"},
    "at home": {"client": "fedbn", "model": "mlp-bn"},
    "prox": {"objective": "fedprox", "mu": 0.1},
}


@pytest.mark.sampled(11)
@pytest.mark.parametrize("way", [*WAYS])
def test_masked_and_plain_runs_have_the_same_bits(settings, way):
    (results, model), (expected, other) = (
        run_on(settings(mode, rounds=2, **WAYS[way])) for mode in ("on", "plain")
    )
    assert model == other
    for result, plain in zip(results, expected, strict=True):
        assert result.metrics == plain.metrics
        assert list(result.train.metrics) == list(plain.train.metrics)


@pytest.mark.slow
def test_a_run_goes_on_after_a_site_that_restarts_and_a_round_that_has_too_few(settings, caplog):
    """A round of all costs two messages more: each client's next keys are in its answer, and with the shares
    to unmask it begins the next sum. In round 3 all that client 1 knows is gone before it trains, and it has
    dropped out; in round 4 three of five clients are gone, and the model stays, in one line."""

    def changed(step, message, reply):
        number = message.content["config"].get("server-round", 0)
        if reply is None and step == "train":
            grid.lost = {"train": (0, 1, 2)} if number == 4 else {}
            if (number, partition_of(message)) == (3, 1):
                grid._contexts.pop(1)

    config = settings("on", rounds=5)
    grid = Lossy(config, changed=changed)
    results, _ = run_on(config, grid)
    steps = [
        (message.content["config"]["server-round"], step)
        for step, partition, message, _ in grid.carried
        if partition == 0
    ]
    assert [step for number, step in steps if number == 1][:2] == [ADVERTISE, SHARE]
    assert [step for number, step in steps if number == 2] == ["train", UNMASK, "evaluate", None]
    assert [len(result.train.metrics) for result in results] == [5, 5, 4, 0, 5]
    why = "secagg: this client has no part in this session, or not any more"
    assert results[2].train.failures == {1: why}
    models = [{n: a.data for n, a in result.arrays.items()} for result in results]
    assert models[1] != models[2] == models[3] != models[4]
    said = [line for line in caplog.messages if line.startswith("round 4, train: secagg: ")]
    assert said == ["round 4, train: secagg: there is no sum: 2 clients are left, and secagg-min is 3"]


@pytest.mark.parametrize("mode", ["on", "plain"])
def test_with_fewer_than_the_threshold_the_model_stays_and_one_line_says_so(settings, caplog, mode):
    """One of three is gone in the first round; nobody is asked to share out secrets for nothing."""

    def changed(step, message, reply):
        number = message.content["config"].get("server-round", 0)
        grid.lost = {ADVERTISE: (2,), "train": (2,)} if number == 1 else {}

    config = settings(mode, rounds=2, num_clients=3, secagg_min=2, secagg_threshold=3)
    grid = Lossy(config, changed=changed)
    results, _ = run_on(config, grid)
    why = "secagg: there is no sum: 2 clients are left, and secagg-threshold is 3"
    assert next(line for line in caplog.messages if "there is no sum" in line) == f"round 1, train: {why}"
    assert {results[0].train.failures[one] for one in (0, 1)} == {why}
    assert [len(result.train.metrics) for result in results] == [0, 3]
    assert not [
        m for step, _, m, _ in grid.carried if step == SHARE and m.content["config"]["server-round"] == 1
    ]


def test_sites_that_have_begun_a_sum_with_a_server_that_died_begin_anew_with_the_next(settings):
    """It died in round 2 while they unmasked; what they know stays with them."""

    class DiedError(Exception):
        pass

    def dies(step, message, reply):
        if step == UNMASK and message.content["config"]["server-round"] == 2:
            raise DiedError

    config = settings("on", rounds=2)
    grid = Lossy(config, changed=dies)
    with pytest.raises(DiedError):
        run_on(config, grid)
    grid.changed = lambda *_: None
    assert run_on(config, grid)[1] == run_on(settings("plain", rounds=2))[1]


def test_an_answer_without_content_has_no_bytes_of_the_exchange():
    asked = Message(RecordDict({SECAGG: ConfigRecord({"own": b"12", "many": [b"345", b"6"]})}), 1, "train")
    failed = Message(Error(0, "no memory"), reply_to=asked)
    assert [config_bytes(message) for message in (asked, failed)] == [6, 0]


@pytest.mark.parametrize(
    ("keys", "rounds"), [({"max_num_examples": 10**12}, 2), ({"secagg_bits": 2}, 1), ({}, 1)]
)
def test_updates_that_drown_in_rounding_are_said_once(settings, caplog, keys, rounds):
    run_on(settings("plain", rounds=rounds, fraction_evaluate=0, **keys))
    said = [line for line in caplog.messages if line.startswith("secagg: rounding moves the mean update by")]
    assert len(said) == (1 if keys else 0)
    examples = "1000000000000" if "max_num_examples" in keys else "288"
    further = f", and as max-num-examples, now {examples}, what the largest client has"
    assert all(line.endswith(further) for line in said)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("who", [(2,), (0, 1, 2, 3, 4)])
def test_a_sum_that_could_not_be_begun_beforehand_is_begun_anew(settings, who):
    def changed(step, message, reply):
        if reply is not None and reply.has_content() and partition_of(message) in who:
            reply.content.pop(UPCOMING, None)

    config = settings("on", rounds=3)
    results, model = run_on(config, Lossy(config, changed=changed))
    assert model == run_on(settings("plain", rounds=3))[1]
    assert all(set(result.evaluate.metrics) == set(range(5)) for result in results)
