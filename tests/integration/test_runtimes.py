"""The real thing: ``python run_sim.py`` on real Ray."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fedbn_flower import cli
from fedbn_flower.config.making import run_config
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from .processes import LONG, ROOT, bits, processes_with, wait_for

pytestmark = pytest.mark.slow

MNIST = ROOT.parent / "shared" / "data" / "mnist"


def test_the_same_bits_on_all_workers(on_all_workers):
    """Dirichlet partitions, three of five clients a round: one model from three runtimes; that it is that of
    ``flwr run`` too, is `test_one_flwr_run`'s."""
    sampled = {"partition": "dirichlet:0.5", "num-clients": 5, "fraction-train": 0.6}
    folders = on_all_workers({"rounds": 3, "client": "fedbn", **sampled})
    assert len({bits(folder) for folder in folders}) == 1
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert all(summary["clients"] == summaries[0]["clients"] for summary in summaries)


@pytest.mark.parametrize(
    "strategy",
    ["ifca", "fedamp", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("cfl", "fedap"))],
)
def test_several_models_have_the_same_bits_on_all_workers(on_all_workers, strategy):
    """Whose is which, too. That they are those of ``flwr run`` is `test_one_flwr_run`'s."""
    own = {
        "ifca": {"clusters": 3},
        "cfl": {"cfl-eps-1": 9.0, "cfl-eps-2": 0.0, "cfl-from-round": 1},
        "fedamp": {"objective": "fedprox", "mu": 0.1, "fedamp-sigma": 10.0},
    }.get(strategy, {})
    run = {"strategy": strategy, "client": "shared", "rounds": 3, "num-clients": 6, "fraction-train": 0.7}
    folders = on_all_workers({**run, "partition": "dirichlet:0.5", **own}, summed=False)
    files = sorted(path.name for path in (folders[0] / "models").iterdir())
    assert len(files) > 2
    assert len({bits(folder) for folder in folders}) == 1
    for name in files:
        assert len({(folder / "models" / name).read_bytes() for folder in folders}) == 1


def test_masked_and_plain_sums_have_the_same_bits_on_all_workers(on_all_workers, tmp_path, cache_dir):
    """Groups of clients in lockstep, whose workers sum integers, masked ones too."""
    keys = {"partition": "iid", "num-clients": 16, "clip-update-norm": 1.0, "client": "silobn", "rounds": 2}
    folders = on_all_workers({**keys, "secagg": "on"})
    plain = run_config({**keys, "dataset": "digits", "secagg": "plain", "cache-dir": str(cache_dir)})
    simulate(Federation(plain), tmp_path / "plain", None)
    assert {bits(folder) for folder in folders} == {bits(tmp_path / "plain")}


@pytest.mark.parametrize(
    ("send", "how", "backend"),
    [
        (os.killpg, signal.SIGINT, "ray"),  # as a terminal does: to the whole group
        (os.kill, signal.SIGHUP, "inline"),  # a terminal that is closed
    ],
)
def test_a_run_that_is_stopped_ends_every_process_and_keeps_what_was_done(
    tmp_path, cache_dir, marked_environment, send, how, backend
):
    """SIGHUP as where these tests are not themselves run under nohup, which has it ignored. A polite kill of
    an app's run is `test_app_on_ray`'s."""
    mark, environment = marked_environment
    command = [sys.executable, "run_sim.py", "--rounds=100000", "--run-dir", tmp_path / "run"]
    command += ["--workers=1"] if backend == "ray" else []
    process = subprocess.Popen(
        ["env", "--default-signal=HUP", *command, "--cache-dir", str(cache_dir), "--backend", backend],
        cwd=ROOT, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    metrics = tmp_path / "run" / "metrics.csv"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 3, process)
    for _ in range(3):  # somebody impatient: only the first one counts
        send(process.pid, how)
        time.sleep(0.1)
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert errors == (
        f"interrupted; what was done so far is in {tmp_path / 'run'}; "
        f"to go on with it: python run_sim.py --resume {tmp_path / 'run'}\n"
    )
    rounds = metrics.read_text().count("\n") - 1
    assert rounds >= 3
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert rounds - 1 <= summary["rounds"] <= rounds  # the signal may fall between the two files
    assert (tmp_path / "run" / "curves.png").exists()
    wait_for(lambda: not processes_with(mark))


def test_exit_statuses(tmp_path, cache_dir, capsys):
    """That the process has them is `test_cli`'s."""
    where = ("--cache-dir", str(cache_dir), "--run-dir")
    never, nan = str(tmp_path / "never"), str(tmp_path / "nan")
    for flags in (("--strategy", "fedyog"), ("--partition", "silos:0-4,15-19"), ("--dataset", "/nowhere")):
        assert cli.main([*flags, *where, never]) == 2
        line = capsys.readouterr().err
        assert line.startswith("error: ")
        assert line.count("\n") == 1
    assert not (tmp_path / "never").exists()
    assert cli.main(["--client-lr", "1e30", "--rounds", "2", "--backend", "inline", *where, nan]) == 1
    error = capsys.readouterr().err
    assert "every client failed in every round" in error
    assert "Traceback" not in error


@pytest.mark.exhaustive
@pytest.mark.usefixtures("pictures_not_drawn")
@pytest.mark.skipif(not MNIST.exists(), reason="needs ../shared/data/mnist")
def test_two_silos_of_mnist(tmp_path, cache_dir):
    """A cell of docs/results/two-silos.md: FedYogi, SiloBN, within 4 points of 83.2 and 84.0 % there."""
    words = (
        "--dataset", MNIST, "--partition", "silos:0-4,5-9", "--softmax-output", "true", "--batch-size", 128,
        "--client-lr", 0.001, "--tau", 1e-4, "--bias-correction", "false", "--eval-model", "local",
        "--client", "silobn", "--seed", 1, "--run-dir", tmp_path / "run", "--cache-dir", cache_dir,
        "--backend", "inline", "--evaluate-every", 10, "--eval-data", "global",
    )  # fmt: skip
    assert cli.main([str(word) for word in words]) == 0
    clients = json.loads((tmp_path / "run" / "summary.json").read_text())["clients"]
    assert [clients[c]["num-examples"] for c in "01"] == [30596, 29404]
    for client, reference in (("0", 0.832), ("1", 0.840)):
        assert abs(clients[client]["accuracy"] - reference) < 0.04
