"""The simulated clock: how long clients take, whose answers count, and every mistake in its keys."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.config.making import run_config
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.participation import (
    PHONE,
    PLAIN,
    Clock,
    SeededParticipation,
    availability,
    rates_of,
    share_of_work,
)
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.server.participation import clock_of, train_bytes
from strategies import FedAvg
from tests.strategies.helpers import CannedGrid
from tests.strategies.messages.test_sampling import sampled

from ..records.helpers import bits, rows_of

HEADER = "partition-id,seconds-per-example,download,upload\n"
JOB = {"partition": "iid", "num_clients": 12, "fraction_train": 0.5, "client": "shared", "model": "linear"}


def clock(examples, deadline=inf, work=None):
    """A client takes a second an example, and one for each direction."""
    rates = np.array([[1.0, 100.0, 100.0]] * len(examples))
    return Clock(rates, np.array(examples), 2, work, lambda server_round: (100, 100), deadline)


def simulated(result):
    return [(int(row["replies"]), float(row["simulated-seconds"])) for row in rows_of(result.folder)]


def test_seconds_by_hand():
    """Bytes over both rates, and the share of all epochs' examples."""
    rates = np.array([[0.5, 100.0, 50.0], [2.0, 10.0, 20.0]])
    shares = {0: 1.0, 1: 0.25}
    timed = Clock(
        rates, np.array([3, 8]), 2, lambda partition, _: shares[partition], lambda r: (100 * r, 50 * r)
    )
    assert timed.seconds(1, np.array([1, 0])).tolist() == [10 + 4 * 2 + 2.5, 1 + 3 + 1]
    assert timed.seconds(2, np.array([0])).tolist() == [2 + 3 + 2]


def test_a_node_whose_partition_is_unknown_has_no_device():
    """Its id of 64 bits stands in the place of a partition."""
    timed, asked = clock([1, 2]), np.array([2**63 + 5, 1, 0])
    assert timed.first(1, asked, np.ones(3, bool), 3).tolist() == [False, True, True]
    assert timed.round_seconds == 6


def test_without_a_clock_nodes_of_unknown_partition_take_part():
    class Large(CannedGrid):
        def get_node_ids(self):
            return [2**63 + 5, 2**64 - 1, 3]

    strategy = FedAvg(ask_partitions=True)
    strategy.node_participation = SeededParticipation(0, 0.0, 0.0, availability("always", 0, 3))
    grid = Large(3, lambda message, node: None, tells_partition=False)
    assert sampled(strategy, grid) == [3, 2**63 + 5, 2**64 - 1]


@pytest.mark.parametrize(
    ("deadline", "lost", "wanted", "counted", "seconds"),
    [
        (inf, [], 3, [1, 2, 3], 8),  # of the two of 8 seconds the first
        (inf, [], 9, [1, 2, 3, 4, 5], 12),
        (inf, [2], 3, [1, 3, 4], 8),
        (inf, [1, 2, 3, 4, 5], 3, [], 0),
        (8, [], 4, [1, 2, 3, 4], 8),
        (7.9, [], 2, [1, 2], 6),  # the deadline does not matter
        (7.9, [], 3, [1, 2], 7.9),
        (12, [2], 5, [1, 3, 4, 5], 12),
        (1, [], 5, [], 1),
    ],
)
def test_whose_answers_count_by_hand(deadline, lost, wanted, counted, seconds):
    """Clients 1 to 5 take 4, 6, 8, 8 and 12 seconds; they are asked in another order."""
    timed, asked = clock([0, 1, 2, 3, 3, 5], deadline), np.array([5, 4, 3, 2, 1])
    found = timed.first(1, asked, ~np.isin(asked, lost), wanted)
    assert sorted(asked[found].tolist()) == counted
    assert timed.round_seconds == seconds


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 20), st.integers(0, 25))
def test_nobody_who_counts_is_slower_than_one_who_does_not(examples, wanted, deadline):
    timed, asked = clock(examples, deadline), np.arange(len(examples))
    found = timed.first(1, asked, np.ones(len(asked), bool), wanted)
    seconds = timed.seconds(1, asked)
    in_time = seconds <= deadline
    assert found.sum() == min(wanted, in_time.sum())
    assert max(seconds[found], default=0) <= min(seconds[in_time & ~found], default=inf)
    assert timed.round_seconds <= max(deadline, *seconds)


def test_devices_are_drawn_as_said():
    """z is standard normal, each client's own, and does not depend on the number of clients."""
    many = rates_of("lognormal:0.5", 3, 20_000)
    z = np.log(many / PLAIN) / 0.5
    assert np.abs(z.mean(0)).max() < 4 / np.sqrt(20_000)
    assert np.abs(z.std(0) - 1).max() < 4 / np.sqrt(2 * 20_000)
    assert np.abs(np.corrcoef(z.T) - np.eye(3)).max() < 4 / np.sqrt(20_000)
    np.testing.assert_array_equal(rates_of("lognormal:0.5", 3, 10), many[:10])
    np.testing.assert_allclose(rates_of("phones", 3, 10), PHONE * np.exp(z[:10]))
    assert (rates_of("uniform", 3, 10) == PLAIN).all()
    assert (rates_of("lognormal:0", 4, 10) == PLAIN).all()
    assert not (rates_of("phones", 4, 10) == rates_of("phones", 3, 10)).any()


def test_a_runs_clock_has_its_sizes_and_shares(configured):
    """A linear model of 8 x 8 images has 640 weights and 10 biases, each array a header of 128 bytes."""
    config = configured(**JOB, devices="phones", stragglers=0.5, local_epochs=3, seed=2)
    asked, inputs = np.arange(12), inputs_of(config)
    rates = rates_of("phones", 2, 12)
    travels = 4 * 650 + 2 * 128
    expected = [
        travels / down
        + share_of_work(2, 0.5, i, 7) * 3 * len(inputs.partitions.train[i]) * seconds
        + travels / up
        for i, (seconds, down, up) in enumerate(rates)
    ]
    np.testing.assert_allclose(clock_of(inputs).seconds(7, asked), expected)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"client": "fedbn", "model": "mlp-bn"}, marks=pytest.mark.slow),
        pytest.param(
            {"client": "silobn", "model": "mlp-bn", "compress_down": "bf16"}, marks=pytest.mark.slow
        ),
        {"strategy": "scaffold", "objective": "scaffold"},
        {"strategy": "ifca", "client": "shared", "clusters": 3},
        {"strategy": "scaffold-momentum", "objective": "scaffold-momentum", "compress": "sign"},
        pytest.param(
            {"client": "silobn", "model": "cnn-bn", "compress": "lowrank:2"}, marks=pytest.mark.slow
        ),
        {"client": "fedbn", "model": "mlp-bn", "compress": "topk:0.1", "freeze": "1"},
    ],
)
def test_the_clocks_bytes_are_those_that_travel(configured, tmp_path, keys):
    """Without evaluation a round's bytes are its messages and their answers."""
    config = configured(**{**JOB, "devices": "uniform", "rounds": 1, "fraction_evaluate": 0.0, **keys})
    summary = simulate(Federation(config), tmp_path, None).as_json()
    down, up = train_bytes(inputs_of(config))
    assert (summary["bytes-sent"], summary["bytes-received"]) == (6 * down, 6 * up)


@pytest.mark.slow
def test_equal_devices_with_nobody_left_out_change_no_bit(run):
    job = JOB | {"fraction_evaluate": 0.0}
    plain, timed = run(**job, run_dir="a"), run(**job, devices="uniform", run_dir="b")
    assert bits(plain) == bits(timed)
    assert "simulated-seconds" not in (plain.folder / "metrics.csv").read_text()
    assert "simulated-seconds" not in plain.summary
    (_, first), (_, second) = simulated(timed)
    assert timed.summary["simulated-seconds"] == second
    assert 0 < first < second


def test_a_run_uses_the_first_answers_and_goes_on_counting(run):
    """Half of 12 clients, times 1.5, are 9; resumed, the clock goes on."""
    keys = {**JOB, "devices": "phones", "dropout": 0.3, "stragglers": 0.3, "over_select": 1.5, "seed": 1}
    keys |= {"fraction_evaluate": 0.0, "evaluate_every": 3}
    whole = run(**keys, round_deadline=6, rounds=3, run_dir="whole")
    half = run(**keys, round_deadline=6, rounds=2, run_dir="half")
    resumed = run(resume=half.folder, rounds=3)
    assert bits(resumed) == bits(whole)
    assert simulated(resumed) == simulated(whole)
    replies = [replies for replies, _ in simulated(whole)]
    lasted = np.diff([0, *(seconds for _, seconds in simulated(whole))])
    assert min(replies) < max(replies) == 6
    assert all(
        seconds == pytest.approx(6, abs=2e-3) for seconds, n in zip(lasted, replies, strict=True) if n < 6
    )
    assert max(lasted) <= 6.002


def test_a_file_by_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "devices.csv").write_text(HEADER + "1,0.5,100,50\n0,0,1e6,2e6\n")
    config = run_config({"devices": "devices.csv"})
    assert config.devices == str(tmp_path / "devices.csv")
    assert rates_of(config.devices, 0, 2).tolist() == [[0, 1e6, 2e6], [0.5, 100, 50]]


@pytest.mark.parametrize(
    ("rows", "output"),
    [
        (None, "is not allowed; expected none, uniform, lognormal:SIGMA"),
        ("partition-id,from,to\n", "expected a CSV file with header partition-id,seconds-per-example"),
        (HEADER + "0,1,1,1\n", "expected a row for every client (1 has none)"),
        *(
            (HEADER + "0,1,1,1\n" + row, f"'{row}' in line 3 of")
            for row in ("2,1,1,1", "0,1,1,1", "1,-1,1,1", "1,1,0,1", "1,1,1,inf", "1,1,1", "a,1,1,1")
        ),
    ],
)
def test_a_file_that_cannot_be_is_one_line_before_anything_starts(tmp_path, refusal, rows, output):
    file = tmp_path / "devices.csv"
    if rows is not None:
        file.write_text(rows)
    line = refusal(devices=str(file))
    assert line.startswith("devices: ")
    assert output in line


def test_a_reference_has_no_devices():
    """It is what it is whatever the run that it is compared with."""
    config = run_config({"devices": "phones", "round-deadline": 3, "reference": "alone"})
    assert config == run_config({"reference": "alone"})
