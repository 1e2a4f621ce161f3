"""What the benchmarks measure: rounds that do what every other side does."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.flower_apps.__main__ import compared, difference
from benchmarks.simulation_peers.fedbn_side import RoundTimes, config_of
from benchmarks.simulation_peers.job import Job, write_data
from fedbn_flower.runtime.simulation import make_grid
from fedbn_flower.server.federation import Federation


@pytest.fixture
def job(tmp_path):
    write_data(tmp_path / "data", (1, 4, 4), 80, 40)
    fields = {"clients": 4, "images": 20, "per_round": 2, "rounds": 3, "workers": 1, "batch": 10}
    return Job(data=str(tmp_path / "data"), model="mlp-bn", shape=(1, 4, 4), lr=0.1, seed=0, **fields)


def run(job, config=None):
    federation = Federation(config or config_of(job))
    times = RoundTimes(job, make_grid(federation, None))
    evaluated = []

    def on_round(result):
        evaluated.append(result.global_metrics is not None)
        RoundTimes.on_round(times, result)

    times.on_round = on_round
    federation.run(make_grid(federation, None), [times])
    return evaluated, len(times.recorder.measured.seconds)


def test_the_server_evaluates_in_no_round_that_is_timed(job):
    """Only in the last round, which follows the timed ones."""
    assert run(job) == ([False, False, False, True], 3)


def test_a_timed_round_that_evaluates_ends_the_benchmark(job):
    config = config_of(job).model_copy(update={"evaluate_every": 1})
    with pytest.raises(RuntimeError, match="round 1 evaluated"):
        run(job, config)


def test_where_clients_evaluate_every_round_does(job):
    assert run(replace(job, evaluating=1.0)) == ([True, True, True, True], 3)


def test_where_the_server_evaluates_every_round_does(job):
    assert run(replace(job, central=True)) == ([True, True, True, True], 3)


def write_run(folder, waits):
    """A run's folder: of each round the seconds waited for training and for evaluation, and half a second."""
    folder.mkdir()
    rows = [
        f"{number},{train + evaluate + 0.5},{train},{evaluate}"
        for number, (train, evaluate) in enumerate(waits, 1)
    ]
    (folder / "metrics.csv").write_text(
        "\n".join(["round,seconds,train-seconds,evaluate-seconds", *rows]) + "\n"
    )
    summary = {"rounds": len(waits), "seconds-per-round": sum(map(sum, waits)) / len(waits) + 0.5}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_exchanges_are_counted_by_what_was_waited_for(tmp_path):
    """Of three rounds: six exchanges, or four."""
    pytest.importorskip("fedbn_flower.consortium")
    from benchmarks import one_exchange

    cold = one_exchange.measured(write_run(tmp_path / "cold", [(14.0, 12.0), (16.0, 14.0), (18.0, 16.0)]))
    off = one_exchange.measured(write_run(tmp_path / "off", [(7.0, 6.0), (8.0, 7.0), (9.0, 8.0)]))
    auto = one_exchange.measured(write_run(tmp_path / "auto", [(7.5, 0.0), (8.0, 0.0), (8.0, 6.5)]))
    assert (off, auto) == ((2.0, 15.0, 15.5, 15.5), (4 / 3, 10.0, 10.5, 8.5))
    runs = zip(one_exchange.WAYS, ([cold], [off], [auto]), strict=True)
    lines = one_exchange.table(dict(runs)).splitlines()
    columns = "1.33 (1.33-1.33) | 10.00 (10.00-10.00) | 10.50 (10.50-10.50) | 8.50 (8.50-8.50)"
    assert lines[4] == f"| `auto` | {columns} |"
    assert lines[-4:] == [
        "- seconds, `auto` / `off`: 0.68 (0.68-0.68)",
        "- seconds, `auto` / `off`, `warm=false`: 0.34 (0.34-0.34)",
        "- seconds of a round between, `auto` / `off`: 0.55 (0.55-0.55)",
        "- seconds of a round between, `auto` / `off`, `warm=false`: 0.28 (0.28-0.28)",
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"a": [1, 2.0]}, {"a": [1, 2.0]}, 0.0),
        ({"a": [1, 2.0]}, {"a": [1, 2.5]}, 0.2),  # of 2 and 2.5
        ({"a": 1}, {"b": 1}, float("inf")),
        ([1], [1, 2], float("inf")),
        ("x", "y", float("inf")),
        (1, 1.0, float("inf")),
        (float("nan"), float("nan"), 0.0),
        (np.array([1.0, 4.0]), np.array([1.0, 5.0]), 0.2),
        (np.ones(2), np.ones(3), float("inf")),
    ],
)
def test_how_far_results_of_two_engines_differ(one, other, expected):
    assert difference(one, other) == expected


def test_an_engine_without_results_has_failed():
    result = {"results": {"loss": 1.0}, "clients": {}, "errors": 0, "arrays": {}}
    assert compared(result, None) == "failed"
    assert compared(result, dict(result)) == "bits"
    assert compared(result, result | {"errors": 1}) == "to 1e+00"
    failed = result | {"errors": 2}
    assert compared(failed, dict(failed)) == "bits, 2 errors"  # which says little
