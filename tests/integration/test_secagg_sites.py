"""Three real SuperNodes: secure aggregation, signed with the keys that they authenticate with; then a truly
asynchronous run, in which one is killed, one is slow, and a fourth joins late.

Sites refuse one that they do not know. That a sum is that of the others where a site is lost in a step, has
forgotten all, or has begun one with a server that died, is shown in one process (`secagg/test_runs.py`).
"""

import csv
import json
import math
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import load

pytest.importorskip("fedbn_flower.consortium")
pytest.importorskip("fedbn_flower.secagg")
pytest.importorskip("fedbn_flower.asynchronous")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import LocalFederation
from fedbn_flower.secagg.words import ADVERTISE
from tests.fedbn_flower.secagg.grids import Lossy, run_on, spellings
from tests.fedbn_flower.secagg.keyed import written_pair

from .hospital import rounds_done
from .processes import FORGETTING, LONG, bits, light_app, marked, start_flwr_run, tracebacks, wait_for
from .unequal import BEHIND, ROUNDS

pytestmark = pytest.mark.slow

JOB = {
    "partition": "iid", "client": "shared", "model": "linear", "dataset": "digits", "local-epochs": 1,
    "fraction-evaluate": 0.0, "clip-update-norm": 1.0, "secagg": "on", "round-timeout": 90.0,
    "checkpoint-every": 1, "num-clients": 3, "rounds": 3, "secagg-min": 3,
}  # fmt: skip
STAGED = '''

_answer_step = answer_step


def answer_step(message, context, run):
    """Say that a site is in a step; wait there as long as a test wants it."""
    from pathlib import Path
    from time import sleep

    number, step = message.content["config"]["server-round"], message.content[words.SECAGG][words.STEP]
    name = f"{{context.node_config['partition-id']}}-{{number}}-{{step}}"
    if (Path("{folder}") / f"stop-{{name}}").exists():
        (Path("{folder}") / f"reached-{{name}}").touch()
    while (Path("{folder}") / f"stop-{{name}}").exists():
        sleep(0.1)
    return _answer_step(message, context, run)
'''
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


@pytest.fixture(scope="module")
def three(tmp_path_factory, undrawn_project):
    folder = tmp_path_factory.mktemp("three")
    shutil.copytree(undrawn_project, folder / "project")
    light_app(folder / "app", folder / "project")
    with (folder / "project/fedbn_flower/secagg/site.py").open("a") as file:
        file.writelines(text.format(folder=folder) for text in (STAGED, NOTED))
    with marked() as (_, environment):
        federation = LocalFederation(folder / "federation", 3, restart_after=math.inf, signing=True)
        federation.environment |= FORGETTING | {"FEDBN_TEST": environment["FEDBN_TEST"]}
        with federation:
            yield Runs(federation, folder)


class Runs:
    """Starts runs on a federation, and waits for what happens to them."""

    def __init__(self, federation, folder):
        self.federation, self.folder = federation, folder

    def start(self, name, **keys):
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

    def log_of(self, site):
        return self.federation.services[f"site-{site}"].log.read_text()


def rows(folder, name):
    with (folder / name).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def summed(three, cache_dir):
    """A run in whose first round the third site's key is another than its partners have; in the second, no
    site can read its partners' keys. What was printed, and the sites' logs until the third."""
    partners = three.federation.folder / "partners"
    right = {site: (partners / f"site-{site}.pub").read_bytes() for site in (1, 2)}
    written_pair(Ed25519PrivateKey.generate(), three.folder / "another", "site-2")
    (three.folder / "another/partners/site-2.pub").replace(partners / "site-2.pub")
    for number in (2, 3):
        for site in range(3):  # in this step they say whom they know
            three.hold(site, number, ADVERTISE)
    three.start("run", **JOB, **{"cache-dir": str(cache_dir)})
    for number, key in ((2, b"no key"), (3, right[1])):
        for site in range(3):
            three.reached(site, number, ADVERTISE)
        logs = [three.log_of(site) for site in range(3)]
        (partners / "site-1.pub").write_bytes(key)
        (partners / "site-2.pub").write_bytes(right[2])
        for site in range(3):
            three.release(site, number, ADVERTISE)
    return three.ends(), logs


def test_the_model_is_that_of_a_simulation_and_no_secret_is_in_a_file(three, summed, cache_dir):
    """Of a site, a checkpoint or a log. That none is in a message, but for shares, is `test_attacks`'s."""
    folder, (output, _) = three.folder / "run", summed
    assert [int(row["replies"]) for row in rows(folder, "metrics.csv")] == [0, 0, 3], output
    assert json.loads((folder / "summary.json").read_text())["extensions"]["secagg"]["signed"] == 3
    plain = {"secagg": "plain", "secagg-min": 2, "cache-dir": str(cache_dir), "backend": "inline"}
    config = run_config(JOB | plain)

    def lost_at_first(step, message, reply):
        number = message.content["config"].get("server-round", 0)
        grid.lost = {"train": range(3) if number < 3 else ()}

    grid = Lossy(config, changed=lost_at_first)
    expected = run_on(config, grid)[1]
    assert all(expected[name].endswith(array.tobytes()) for name, array in load(bits(folder)).items())
    secrets = [bytes.fromhex(line) for line in (three.folder / "secrets").read_text().split()]
    assert len(secrets) > 3 * 3
    files = [three.log, *folder.rglob("*"), *three.federation.folder.rglob("*")]
    for path in (path for path in files if path.is_file() and "apps" not in path.parts):
        text = path.read_bytes()
        assert not any(spelt in text for secret in secrets for spelt in spellings(secret)), path


def test_sites_refuse_one_that_they_do_not_know(three, summed):
    """No private key is in a file but its own."""
    output, logs = summed
    line = "secagg: the secagg-partners of partition 0, partition 1 do not have its key"
    assert f"round 1, train: partition 2 dropped: {line}" in output
    assert "there is no sum: 2 clients are left, and secagg-min is 3" in output
    failures = rows(three.folder / "run", "failures.csv")
    reasons = {row["partition"]: row["reason"] for row in failures if row["round"] == "1"}
    assert [line in reasons[site] for site in "012"] == [False, False, True]
    mistaken = Counter(row["partition"] for row in failures if "public keys of Ed25519" in row["reason"])
    assert all(mistaken[site] >= 1 for site in "012"), failures
    assert not any(str(three.folder) in row["reason"] for row in failures)
    for site, log in enumerate(logs):
        assert log.count("secagg-partners: '") == mistaken[str(site)]
        assert "site-1.pub has something else" in log
        assert not tracebacks(log)
        key = three.federation.folder / f"site-{site}/key"
        files = [path for path in three.folder.rglob("*") if path.is_file() and path != key]
        assert not [path for path in files if key.read_bytes().splitlines()[-2] in path.read_bytes()]


UNEQUAL = {
    "protocol": "fedbuff:2", "concurrency": 3, "num-clients": 4, "partition": "iid", "model": "mlp-bn",
    "rounds": ROUNDS, "evaluate-every": ROUNDS, "target": "accuracy=0.2",
}  # fmt: skip


def test_who_dies_is_slow_or_late_costs_itself_only(three, cache_dir):
    """Of four SuperNodes, which do not sign any more, three train at once, and any two answers make a
    version."""
    federation, run = three.federation, three.folder / "unequal"
    federation.signing = False
    for site in range(3):
        federation.services[f"site-{site}"].stop()
        federation.start_supernode(site)
    client = shutil.copy(Path(__file__).with_name("unequal.py"), three.folder)
    before = federation.runs()
    three.start("unequal", **UNEQUAL, client=f"{client}:Unequal", **{"cache-dir": str(cache_dir)})
    wait_for((three.folder / "waiting").exists, three.process)
    federation.start_supernode(3)
    wait_for(lambda: rounds_done(run) >= 2, three.process)
    os.killpg(federation.services["site-1"].process.pid, signal.SIGKILL)
    output = three.ends()
    (ended,) = federation.runs().items() - before.items()
    assert ended[1] == "finished:completed", output
    assert "Traceback" not in output
    by_round = {number: {} for number in range(1, ROUNDS + 1)}
    for row in rows(run, "clients.csv"):
        if row["phase"] == "train":
            by_round[int(row["round"])][int(row["partition"])] = int(row["staleness"])
    assert all(len(answers) == 2 for answers in by_round.values()), by_round
    assert [number for number, answers in by_round.items() if 1 in answers] == [1]
    slow = [answers[2] for answers in by_round.values() if 2 in answers]
    assert 1 <= len(slow) < ROUNDS - 2  # most versions do without it
    assert max(slow) >= BEHIND
    assert sum(3 in answers for answers in by_round.values()) >= 2
    refused = rows(run, "failures.csv")
    assert {(row["partition"], row["phase"]) for row in refused} <= {("1", "train")}
    assert len(refused) <= 1
    assert all(int(row["round"]) > 2 for row in refused)
    metrics, summary = rows(run, "metrics.csv"), json.loads((run / "summary.json").read_text())
    assert [int(row["staleness-max"]) for row in metrics] == [max(a.values()) for a in by_round.values()]
    reached = summary["rounds-to-target"]["global"] or summary["rounds-to-target"]["mean"]
    costs = summary["costs-to-target"]["global"] or summary["costs-to-target"]["mean"]
    assert costs["seconds"] == pytest.approx(sum(float(r["seconds"]) for r in metrics[:reached]), abs=0.01)
