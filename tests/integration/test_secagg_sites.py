"""Real SuperNodes with secure aggregation, which sign with the keys that they authenticate with.

The server is killed in a round, and sites refuse one that they do not know. That a sum is that of the others
where a site is lost in a step, or has forgotten all, is shown in one process (`secagg/test_runs.py`); that it
is so where real sites are killed is exhaustive.
"""

import csv
import json
import math
import os
import shutil
import signal
from collections import Counter
from contextlib import contextmanager

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import load

pytest.importorskip("fedbn_flower.consortium")
pytest.importorskip("fedbn_flower.secagg")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import LocalFederation, wait_until_answers
from fedbn_flower.secagg.cryptography import LENGTH
from fedbn_flower.secagg.words import ADVERTISE, UNMASK
from tests.fedbn_flower.secagg.grids import STEPS, Lossy, run_on, spellings
from tests.fedbn_flower.secagg.keyed import written_pair

from .hospital import rounds_done
from .processes import (
    FORKING,
    KNOWN,
    LONG,
    bits,
    kill_superlink,
    light_app,
    marked,
    miss,
    start_flwr_run,
    tracebacks,
    wait_for,
)

pytestmark = pytest.mark.slow

HELD = 0
JOB = {
    "partition": "iid", "client": "shared", "model": "linear", "dataset": "digits", "local-epochs": 1,
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
CHANGES = (("secagg/site", STAGED), ("site/privacy", TRAINING), ("secagg/site", NOTED))


@contextmanager
def federation_in(folder, sites, project):
    shutil.copytree(project, folder / "project")
    light_app(folder / "app", folder / "project")
    for module, text in CHANGES:
        with (folder / f"project/fedbn_flower/{module}.py").open("a") as file:
            file.write(text.format(waiting=WAITING.format(folder=folder), folder=folder))
    with marked() as (_, environment):
        federation = LocalFederation(
            folder / "federation", sites, restart_after=1, node_config="secagg-required=true", signing=True
        )
        federation.environment |= FORKING | {"FEDBN_TEST": environment["FEDBN_TEST"]}
        with federation:
            yield federation


@pytest.fixture(scope="module")
def three(tmp_path_factory, undrawn_project):
    folder = tmp_path_factory.mktemp("three")
    with federation_in(folder, 3, undrawn_project) as federation:
        yield Runs(federation, folder)


class Runs:
    """Starts runs on a federation, and waits for what happens to them."""

    def __init__(self, federation, folder):
        self.federation, self.folder = federation, folder

    def start(self, name, cache_dir, **keys):
        keys = {**JOB, "num-clients": 3, "cache-dir": str(cache_dir), **keys}
        self.log = self.folder / f"{name}.log"
        self.process = start_flwr_run(self.federation, self.folder / "app", self.folder, name, **keys)

    def happens(self, condition):
        wait_for(lambda: condition() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def ends(self):
        self.process.wait(LONG)
        return self.log.read_text()

    def hold(self, site, number, step):
        (self.folder / f"stop-{site}-{number}-{step}").touch()

    def reached(self, site, number, step):
        self.happens((self.folder / f"reached-{site}-{number}-{step}").exists)

    def release(self, site, number, step):
        (self.folder / f"stop-{site}-{number}-{step}").unlink()
        (self.folder / f"reached-{site}-{number}-{step}").unlink(missing_ok=True)

    def kill(self, site):
        """Kill a site, which stays so until it is restarted. The SuperLink misses it at once, not after a
        while."""
        service = self.federation.services[f"site-{site}"]
        service.restart_after = math.inf
        os.killpg(service.process.pid, signal.SIGKILL)
        miss(service.log, self.federation.folder / "superlink/state.db")

    def log_of(self, site):
        return self.federation.services[f"site-{site}"].log.read_text()

    def restart(self, sites):
        """Have sites start again, and wait until the SuperLink knows them."""
        services = [self.federation.services[f"site-{site}"] for site in sites]
        before = [service.log.read_text().count(KNOWN) for service in services]
        for service in services:
            service.restart_after = 0
        for service, count in zip(services, before, strict=True):
            self.happens(lambda log=service.log, count=count: log.read_text().count(KNOWN) > count)


def of_plain_sums(cache_dir, sites, rounds, lost=()):
    """The bytes of a simulation's last model, in which ``lost`` are the rounds and clients without answer."""
    config = run_config(
        {**JOB, "num-clients": sites, "rounds": rounds, "secagg": "plain", "secagg-min": 2,
         "cache-dir": str(cache_dir), "backend": "inline"}
    )  # fmt: skip

    def changed(step, message, reply):
        number = message.content["config"].get("server-round", 0)
        grid.lost = {"train": [site for at, site in lost if at == number]}

    grid = Lossy(config, changed=changed)
    return run_on(config, grid)[1]


def has_the_bits(folder, expected):
    return all(expected[name].endswith(array.tobytes()) for name, array in load(bits(folder)).items())


def replies(folder):
    with (folder / "metrics.csv").open() as file:
        return [int(row["replies"]) for row in csv.DictReader(file)]


def sites_are_killed(runs, cache_dir, killed, **keys):
    """A run in each round of which sites are killed: by step. It has the bits of plain sums over those whose
    vectors arrived. The next round begins when they are back, and has all of them."""
    sites, rounds = runs.federation.supernodes, len(killed)
    for number, steps in enumerate(killed, 1):
        for step, site in steps.items():
            runs.hold(site, number, step)
        if number < rounds:
            runs.hold(HELD, number, UNMASK)
    runs.start("killed", cache_dir, rounds=rounds, **{"num-clients": sites, **keys})
    for number, steps in enumerate(killed, 1):
        for step, site in steps.items():
            runs.reached(site, number, step)
            runs.kill(site)
            runs.release(site, number, step)
        if number < rounds:
            runs.reached(HELD, number, UNMASK)  # nobody waits for them any more
            runs.restart(steps.values())
            runs.release(HELD, number, UNMASK)
    output = runs.ends()
    lost = [[site for step, site in steps.items() if step != UNMASK] for steps in killed]
    assert replies(runs.folder / "killed") == [sites - len(those) for those in lost], output
    places = [(number, site) for number, those in enumerate(lost, 1) for site in those]
    assert has_the_bits(runs.folder / "killed", of_plain_sums(cache_dir, sites, rounds, places))


@pytest.mark.exhaustive
def test_six_sites_are_killed_one_a_round(tmp_path, cache_dir, undrawn_project):
    """In every step: each sum is that of the others, with as many shares as it has by default."""
    with federation_in(tmp_path, 6, undrawn_project) as federation:
        killed = [{step: site} for site, step in enumerate(STEPS, 1)]
        sites_are_killed(Runs(federation, tmp_path), cache_dir, killed)


@pytest.fixture(scope="module")
def went_on(three, cache_dir):
    """A run in whose first round the third site's key is another than its partners have; in the second, no
    site can read its partners' keys. While sites unmask in the fourth, the SuperLink and the server's program
    are killed, and the run is resumed. What was printed, and the sites' logs until then."""
    keys, folder = {"rounds": 4, "secagg-min": 3}, three.folder / "run"
    partners = three.federation.folder / "partners"
    right = {site: (partners / f"site-{site}.pub").read_bytes() for site in (1, 2)}
    written_pair(Ed25519PrivateKey.generate(), three.folder / "another", "site-2")
    (three.folder / "another/partners/site-2.pub").replace(partners / "site-2.pub")
    for number in (2, 3):
        for site in range(3):  # in this step they say whom they know
            three.hold(site, number, ADVERTISE)
    three.hold(HELD, 4, UNMASK)
    three.start("run", cache_dir, **keys)
    for number, key in ((2, b"no key"), (3, right[1])):
        for site in range(3):
            three.reached(site, number, ADVERTISE)
        logs = [three.log_of(site) for site in range(3)]
        (partners / "site-1.pub").write_bytes(key)
        (partners / "site-2.pub").write_bytes(right[2])
        for site in range(3):
            three.release(site, number, ADVERTISE)
    three.reached(HELD, 4, UNMASK)
    superlink = three.federation.services["superlink"]
    kill_superlink(superlink)
    three.ends()
    assert rounds_done(folder) == 3
    three.release(HELD, 4, UNMASK)
    wait_for(lambda: superlink.starts == 2)
    assert wait_until_answers(three.federation.port)
    three.start("run", cache_dir, **keys, resume=str(folder))
    return three.ends(), logs


def test_the_server_is_killed_in_a_round_and_the_run_is_resumed(three, went_on, cache_dir):
    """The model is that of a run that never stopped, and no secret is in a file of a site, a checkpoint, a
    log or the SuperLink's database. This has shares that the server was told, as it has all messages."""
    folder, (output, _) = three.folder / "run", went_on
    assert output.count(f"resuming {folder} after round 3") == 1, output
    assert replies(folder)[2:] == [3, 3], output
    assert json.loads((folder / "summary.json").read_text())["extensions"]["secagg"]["signed"] == 3
    without_sum = [(number, site) for number in (1, 2) for site in range(3)]
    assert has_the_bits(folder, of_plain_sums(cache_dir, 3, 4, without_sum))
    secrets = [bytes.fromhex(line) for line in (three.folder / "secrets").read_text().split()]
    assert len(secrets) > 3 * 4
    files = [three.log, *folder.rglob("*"), *three.federation.folder.rglob("*")]
    database = three.federation.services["superlink"].log.parent
    for path in (path for path in files if path.is_file() and "apps" not in path.parts):
        text = path.read_bytes()
        for secret in secrets:
            if not (path.parent == database and len(secret) > LENGTH):  # a share that the server was told
                assert not any(spelt in text for spelt in spellings(secret)), path


def test_sites_refuse_one_that_they_do_not_know(three, went_on):
    """No private key is in a file but its own."""
    output, logs = went_on
    line = "secagg: the secagg-partners of partition 0, partition 1 do not have its key"
    assert f"round 1, train: partition 2 dropped: {line}" in output
    assert "there is no sum: 2 clients are left, and secagg-min is 3" in output
    with (three.folder / "run/failures.csv").open() as file:
        rows = list(csv.DictReader(file))
    reasons = {row["partition"]: row["reason"] for row in rows if row["round"] == "1"}
    assert [line in reasons[site] for site in "012"] == [False, False, True]
    mistaken = Counter(row["partition"] for row in rows if "expected public keys of Ed25519" in row["reason"])
    assert all(mistaken[site] >= 1 for site in "012"), rows
    assert not any(str(three.folder) in row["reason"] for row in rows)
    for site, log in enumerate(logs):
        assert log.count("secagg-partners: '") == mistaken[str(site)]
        assert "site-1.pub has something else" in log
        assert not tracebacks(log)
        key = three.federation.folder / f"site-{site}/key"
        files = [path for path in three.folder.rglob("*") if path.is_file() and path != key]
        assert not [path for path in files if key.read_bytes().splitlines()[-2] in path.read_bytes()]
