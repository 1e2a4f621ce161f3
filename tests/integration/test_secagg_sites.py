"""Real SuperNodes with secure aggregation: sites are killed in each step of a round, and so is the server; a
site that demands more than the run has refuses."""

import csv
import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.numpy import load

from deploy.local_federation import LocalFederation, wait_until_answers
from fedbn_flower.config.making import run_config
from fedbn_flower.extensions.secagg.masks import LENGTH
from fedbn_flower.extensions.secagg.words import UNMASK
from tests.fedbn_flower.extensions.secagg.grids import STEPS, Lossy, run_on, spellings

from .guide import SOONER
from .hospital import rounds_done, wait_for
from .processes import ROOT, bits, marked, processes_with

pytestmark = pytest.mark.slow

HELD, DEMANDING = 0, 2
JOB = {
    "partition": "iid", "client": "fedavg", "model": "2nn", "dataset": "digits", "local-epochs": 1,
    "fraction-evaluate": 0.0, "clip-update-norm": 1.0, "secagg": "on", "round-timeout": 90.0,
    "checkpoint-every": 1,
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
NOTED = '''

def _noted(function, values):
    """Write down the secrets that a function makes, where a test looks for them."""

    def noting(*arguments):
        found = function(*arguments)
        with open("{folder}/secrets", "a") as file:
            file.writelines(secret.hex() + "\\n" for secret in values(found))
        return found

    return noting


KeyPair.private_bytes = _noted(KeyPair.private_bytes, lambda key: [key])
split = _noted(split, lambda shares: shares.values())
os = type(os)("os")
os.urandom = _noted(__import__("os").urandom, lambda seed: [seed])
'''
CHANGES = {
    "extensions/secagg/at_client": STAGED, "privacy/site": TRAINING, "extensions/secagg/site": NOTED
}  # fmt: skip


class Owned(LocalFederation):
    """Sites that demand masks, and of which one wants sums of three."""

    def start_supernode(self, index):
        self.node_config = f"secagg-required=true secagg-min={3 if index == DEMANDING else 2}"
        super().start_supernode(index)


@contextmanager
def federation_in(folder, sites):
    ignored = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "build", "dist")
    shutil.copytree(ROOT, folder / "app", ignore=ignored, symlinks=True)
    for module, text in CHANGES.items():
        with (folder / f"app/fedbn_flower/{module}.py").open("a") as file:
            file.write(text.format(waiting=WAITING.format(folder=folder), folder=folder))
    with marked() as (_, environment):
        federation = Owned(folder / "federation", sites, restart_after=1)
        federation.environment |= SOONER | {"FEDBN_TEST": environment["FEDBN_TEST"]}
        with federation:
            yield federation


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    with federation_in(folder, 3) as federation:
        yield Runs(federation, folder)


class Runs:
    """Starts runs on a federation, and waits for what happens to them."""

    def __init__(self, federation, folder):
        self.federation, self.folder = federation, folder

    def start(self, name, cache_dir, **keys):
        keys = {**JOB, "num-clients": self.federation.supernodes, "cache-dir": str(cache_dir), **keys}
        keys["run-dir"] = str(self.folder / name)
        words = " ".join(f"{key}={value!r}" for key, value in keys.items())
        self.log = self.folder / f"{name}.log"
        command = ["flwr", "run", self.folder / "app", "local", "--stream", "--run-config", words]
        self.process = subprocess.Popen(
            list(map(str, command)), cwd=self.folder, env=self.federation.environment,
            stdout=self.log.open("a"), stderr=subprocess.STDOUT,
        )  # fmt: skip

    def happens(self, condition):
        wait_for(lambda: condition() or self.process.poll() is not None, 300)
        assert self.process.poll() is None, self.log.read_text()

    def ends(self):
        self.process.wait(timeout=300)
        return self.log.read_text()

    def hold(self, site, number, step):
        (self.folder / f"stop-{site}-{number}-{step}").touch()

    def reached(self, site, number, step):
        self.happens((self.folder / f"reached-{site}-{number}-{step}").exists)

    def release(self, site, number, step):
        (self.folder / f"stop-{site}-{number}-{step}").unlink()
        (self.folder / f"reached-{site}-{number}-{step}").unlink(missing_ok=True)


def of_plain_sums(cache_dir, sites, rounds, lost=()):
    """The bytes of a simulation's last model, in which ``lost`` are the rounds and clients without answer."""
    config = run_config(
        {**JOB, "num-clients": sites, "rounds": rounds, "secagg": "plain", "secagg-min": 2,
         "cache-dir": str(cache_dir), "backend": "inline"}
    )  # fmt: skip

    def changed(step, message, reply):
        number = message.content["config"].get("server-round", 0)
        grid.lost = {"train": [site for at, site in lost if at == number]}
        return message if reply is None else reply

    grid = Lossy(config, changed=changed)
    return run_on(config, grid)[1]


def has_the_bits(folder, expected):
    return all(expected[name].endswith(array.tobytes()) for name, array in load(bits(folder)).items())


def replies(folder):
    with (folder / "metrics.csv").open() as file:
        return [int(row["replies"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("sites", [4, pytest.param(6, marks=pytest.mark.exhaustive)])
def test_sites_are_killed_in_every_step_and_each_sum_is_that_of_the_others(sites, tmp_path, cache_dir):
    """One a round, which is done in the bits of a plain sum over those whose vectors arrived. The next one
    begins when it is back, and has all of them."""
    with federation_in(tmp_path, sites) as federation:
        runs, rounds = Runs(federation, tmp_path), len(STEPS)
        killed = {number: 1 + (number - 1) % (sites - 1) for number in range(1, rounds + 1)}
        for number, step in enumerate(STEPS, 1):
            runs.hold(killed[number], number, step)
            if number < rounds:
                runs.hold(HELD, number, UNMASK)
        runs.start("run", cache_dir, rounds=rounds)
        for number, step in enumerate(STEPS, 1):
            runs.reached(killed[number], number, step)
            site = federation.services[f"site-{killed[number]}"]
            before = site.log.read_text().count("SuperNode ID")
            os.killpg(site.process.pid, signal.SIGKILL)
            runs.release(killed[number], number, step)
            if number < rounds:
                runs.happens(lambda site=site, n=before: site.log.read_text().count("SuperNode ID") > n)
                time.sleep(5)  # until the SuperLink knows it
                runs.release(HELD, number, UNMASK)
        output, run = runs.ends(), tmp_path / "run"
    answered = STEPS.index(UNMASK) + 1
    lost = [(number, site) for number, site in killed.items() if number != answered]
    assert replies(run) == [sites - (number != answered) for number in killed], output
    assert has_the_bits(run, of_plain_sums(cache_dir, sites, rounds, lost))


def test_the_server_is_killed_twice_in_a_round_and_the_run_is_resumed(three, cache_dir):
    """Its program, while sites train; then the SuperLink, while they unmask. The model is that of a run that
    never stopped, and no secret is in a file of a site, a checkpoint, a log or the SuperLink's database. This
    has shares that the server was told, as it has all messages."""
    folder, keys = three.folder / "run", {"rounds": 2, "secagg-min": 3}
    superlink = three.federation.services["superlink"]
    three.hold(HELD, 2, "train")
    three.start("run", cache_dir, **keys)
    three.reached(HELD, 2, "train")
    mark = f"FEDBN_TEST={three.federation.environment['FEDBN_TEST']}"
    for pid in processes_with(mark):
        if b"flwr-serverapp" in (Path("/proc") / str(pid) / "cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    three.process.kill()  # it waits for a minute until the SuperLink knows
    assert rounds_done(folder) == 1
    three.release(HELD, 2, "train")
    three.hold(HELD, 2, UNMASK)
    three.start("run", cache_dir, **keys, resume=str(folder))
    three.reached(HELD, 2, UNMASK)
    os.killpg(superlink.process.pid, signal.SIGKILL)
    three.ends()
    assert rounds_done(folder) == 1
    three.release(HELD, 2, UNMASK)
    wait_for(lambda: superlink.starts == 2)
    assert wait_until_answers(three.federation.port)
    three.start("run", cache_dir, **keys, resume=str(folder))
    output = three.ends()
    assert output.count(f"resuming {folder} after round 1") == 2
    assert replies(folder) == [3, 3], output
    assert has_the_bits(folder, of_plain_sums(cache_dir, 3, 2))
    secrets = [bytes.fromhex(line) for line in (three.folder / "secrets").read_text().split()]
    assert len(secrets) > 3 * 4
    files = [three.log, *folder.rglob("*"), *three.federation.folder.rglob("*")]
    for path in (path for path in files if path.is_file() and "apps" not in path.parts):
        text, database = path.read_bytes(), path.parent == superlink.log.parent
        for secret in secrets:
            if not (database and len(secret) > LENGTH):  # a share that the server was told
                assert not any(spelt in text for spelt in spellings(secret)), path


def test_a_site_refuses_what_is_less_than_it_demands_before_it_trains(three, cache_dir):
    """The run goes on with the others where they are enough; where every site refuses, it ends."""
    demanding = three.federation.services[f"site-{DEMANDING}"].log
    before = len(demanding.read_text())
    three.hold(DEMANDING, 1, "train")  # where it would be seen to train
    three.start("less", cache_dir, rounds=1, **{"secagg-min": 2})
    output, line = three.ends(), "secagg-min: 2 is not allowed at this site; expected at least 3"
    assert replies(three.folder / "less") == [2]
    assert has_the_bits(three.folder / "less", of_plain_sums(cache_dir, 3, 1, [(1, DEMANDING)]))
    assert output.count(line) == 1
    assert f"partition {DEMANDING} dropped: {line}" in output
    assert demanding.read_text()[before:].count(line) == 1
    for site in range(2):
        three.hold(site, 1, "train")
    three.start("none", cache_dir, rounds=1, secagg="off")
    output = three.ends()
    line = "secagg: 'off' is not allowed at this site; expected 'on' (secagg-required)"
    assert all(output.count(f"partition {site} dropped: {line}") == 1 for site in range(3)), output
    assert f"the model was never updated; 3 of 3 failures: {line}" in output
    assert "Traceback" not in output
    for site in range(3):
        assert not (three.folder / f"reached-{site}-1-train").exists()
