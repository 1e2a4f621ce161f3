"""Four real SuperNodes with secure aggregation, of which one is killed in each step of a round."""

import csv
import os
import shutil
import signal
import subprocess
import time

import pytest
from safetensors.numpy import load

from deploy.local_federation import LocalFederation
from fedbn_flower.config.making import run_config
from fedbn_flower.extensions.secagg.words import UNMASK
from tests.fedbn_flower.extensions.secagg.grids import STEPS, Lossy, run_on

from .guide import OFFLINE
from .hospital import wait_for
from .processes import ROOT, bits, marked

pytestmark = pytest.mark.slow

SITES, KILLED, HELD = 4, 1, 0
JOB = {
    "num-clients": SITES, "partition": "iid", "client": "fedavg", "model": "2nn", "dataset": "digits",
    "local-epochs": 1, "fraction-evaluate": 0.0, "clip-update-norm": 1.0, "secagg": "on",
    "round-timeout": 90.0, "checkpoint-every": 1,
}  # fmt: skip
WAITING = '''

def _waiting(partition, number, step):
    """Say that a site is in a step; wait there as long as a test wants it."""
    from pathlib import Path
    from time import sleep

    name = f"{{partition}}-{{number}}-{{step}}"
    if (Path("{folder}") / f"stop-{{name}}").exists():
        (Path("{folder}") / f"reached-{{name}}").touch()
    while (Path("{folder}") / f"stop-{{name}}").exists():
        sleep(0.1)


'''
STAGED = """{waiting}
_answer_step = answer_step


def answer_step(message, context, run):
    number = message.content["config"]["server-round"]
    _waiting(context.node_config["partition-id"], number, message.content[words.SECAGG][words.STEP])
    return _answer_step(message, context, run)
"""
TRAINING = """{waiting}
_charge = SitePrivacy.charge_training


def charge_training(self, task, asked):
    _waiting(task.seed[-1], asked["server-round"], "train")
    _charge(self, task, asked)


SitePrivacy.charge_training = charge_training
"""


@pytest.fixture
def four(tmp_path):
    ignored = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "build", "dist")
    shutil.copytree(ROOT, tmp_path / "app", ignore=ignored, symlinks=True)
    for module, text in (("extensions/secagg/at_client", STAGED), ("privacy/site", TRAINING)):
        with (tmp_path / f"app/fedbn_flower/{module}.py").open("a") as file:
            file.write(text.format(waiting=WAITING.format(folder=tmp_path)))
    with marked() as (_, environment):
        federation = LocalFederation(
            tmp_path / "federation", SITES, restart_after=1, node_config="secagg-required=true secagg-min=3"
        )
        federation.environment |= OFFLINE | {"FEDBN_TEST": environment["FEDBN_TEST"]}
        federation.environment.pop("PYTHONPATH", None)
        with federation:
            yield federation


def start(federation, folder, cache_dir, **keys):
    keys = {**JOB, "cache-dir": str(cache_dir), "run-dir": str(folder / "run"), **keys}
    words = " ".join(f"{key}={str(v).lower() if isinstance(v, bool) else repr(v)}" for key, v in keys.items())
    log = (folder / "run.log").open("a")
    command = ["flwr", "run", folder / "app", "local", "--stream", "--run-config", words]
    return subprocess.Popen(
        list(map(str, command)), cwd=folder, env=federation.environment, stdout=log, stderr=subprocess.STDOUT
    )


@pytest.mark.parametrize("step", STEPS)
def test_a_site_is_killed_in_a_step_and_the_sum_is_that_of_the_others(four, tmp_path, cache_dir, step):
    """The round is done, in the bits of a plain sum over those whose vectors arrived; then all take part."""
    stop, hold = tmp_path / f"stop-{KILLED}-1-{step}", tmp_path / f"stop-{HELD}-1-unmask"
    rounds = 1 if step == UNMASK else 2
    stop.touch()
    if rounds == 2:  # the second round is to begin with all
        hold.touch()
    log, site = tmp_path / "run.log", four.services[f"site-{KILLED}"]
    process = start(four, tmp_path, cache_dir, rounds=rounds)

    def happens(condition):
        wait_for(lambda: condition() or process.poll() is not None, 300)
        assert process.poll() is None, log.read_text()

    happens((tmp_path / stop.name.replace("stop", "reached")).exists)
    before = site.log.read_text().count("SuperNode ID")
    os.killpg(site.process.pid, signal.SIGKILL)
    stop.unlink()
    if rounds == 2:
        happens(lambda: site.log.read_text().count("SuperNode ID") > before)
        time.sleep(5)  # until the SuperLink knows it
        hold.unlink()
    assert process.wait(timeout=300) == 0, log.read_text()
    run = tmp_path / "run"
    answered = step == UNMASK
    with (run / "metrics.csv").open() as file:
        assert [row["replies"] for row in csv.DictReader(file)] == (["4"] if answered else ["3", "4"])
    config = run_config(
        {**JOB, "rounds": rounds, "secagg": "plain", "cache-dir": str(cache_dir), "backend": "inline"}
    )

    def changed(step, message, reply):
        first = message.content["config"].get("server-round", 0) == 1
        grid.lost = {"train": (KILLED,)} if first and not answered else {}
        return message if reply is None else reply

    grid = Lossy(config, changed=changed)
    _, expected = run_on(config, grid)
    for name, array in load(bits(run)).items():
        assert expected[name].endswith(array.tobytes()), name
