"""docs/deployment.md, command by command: a real SuperLink and SuperNodes, which die and come back."""

import json
import math
import os
import re
import signal
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection

import pytest

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.consortium.local import free_port, wait_until_answers

from .guide import SITES, blocks
from .hospital import model, results, rounds_done, rounds_trained, simulated
from .processes import KNOWN, LONG, ROOT, kill_superlink, miss, processes_with, runs, wait_for

pytestmark = pytest.mark.slow


def test_no_command_of_the_guide_is_left_out():
    """Those of each label are executed by a test below, or by its fixture; what the first one starts is
    `test_wheel`'s, and what it says `test_local_federation`'s."""
    guide = (ROOT / "docs" / "deployment.md").read_text()
    assert set(blocks(guide)) == {
        "superlink", "site", "site start", "user try", "user register", "user run", "user resume"
    }  # fmt: skip


def test_a_certificate_holds_for_every_name_and_address_given(tmp_path):
    names = ["node1", "superlink.example.org", "10.0.0.5", "::1"]
    script = ROOT / "deploy" / "certificates.sh"
    subprocess.run(["bash", script, tmp_path, *names], check=True, capture_output=True)
    shown = subprocess.run(
        ["openssl", "x509", "-in", tmp_path / "server.pem", "-noout", "-ext", "subjectAltName"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    expected = "DNS:node1, DNS:superlink.example.org, IP Address:10.0.0.5, IP Address:0:0:0:0:0:0:0:1"
    assert expected in shown.stdout


def test_a_new_certificate_is_of_the_same_authority(tmp_path):
    """So sites, which have that of the authority, change nothing."""
    script = ["bash", ROOT / "deploy" / "certificates.sh", tmp_path, "localhost"]
    before = {}
    for _ in range(2):
        subprocess.run(script, check=True, capture_output=True)
        now = {
            name: (tmp_path / name).read_bytes() for name in ("ca.crt", "ca.key", "server.pem", "server.key")
        }
        same = {name for name in before if before[name] == now[name]}
        before = now
    assert same == {"ca.crt", "ca.key"}
    verify = ["openssl", "verify", "-CAfile", tmp_path / "ca.crt", tmp_path / "server.pem"]
    subprocess.run(verify, check=True, capture_output=True)


def bits_of_a_round(folder):
    """A round that is done, and the model after it."""

    def done():
        summary = folder / "summary.json"
        return json.loads(summary.read_text())["rounds"] if summary.exists() else 0

    wait_for(done)
    while True:
        before, found = done(), model(folder)
        if before == done():
            return before, found


def worker_of(guide, site):
    """The process in which a site trains."""
    (worker,) = (
        pid
        for pid in processes_with(f"HOME={guide.folder / site}/var/lib/fedbn")
        if runs(pid, "warm/boot.py")
    )
    return worker


def kill_a_site(guide, folder):
    """Kill it (-9) while it trains, and start it again once a round is done without it; its log from then
    on."""
    site, worker = guide.services["site-b"], worker_of(guide, "site-b")
    site.restart_after = math.inf
    os.kill(worker, signal.SIGSTOP)  # one that is killed between two rounds is not asked, and fails in none
    wait_for(lambda: (log := site.log.read_text()).count("Receiving: train") > log.count("Sending: train"))
    for process in (site.process.pid, worker):
        os.kill(process, signal.SIGKILL)
    miss(site.log, guide.folder / "superlink/var/lib/fedbn/superlink.db")
    wait_for(lambda: len(rounds_trained(folder, 0)) > len(rounds_trained(folder, 1)))  # of one file, in order
    other = worker_of(guide, "site-a")
    os.kill(other, signal.SIGSTOP)  # it trains on when this one is back, however long that takes
    earlier = site.log.read_text()
    site.restart_after = 0
    wait_for(lambda: KNOWN in site.log.read_text().removeprefix(earlier))
    os.kill(other, signal.SIGCONT)
    return lambda: site.log.read_text().removeprefix(earlier)


def test_the_guide_from_nothing_to_the_model_of_a_simulation_through_deaths(hospital, cache_dir, monkeypatch):
    """TLS, authentication, two sites with data of their own, FedBN and FedYogi: bit for bit.

    Some rounds are done without a site that was killed, and it goes on from its own last one. The SuperLink
    is killed when it has; the run is resumed. Images are standardised as in one place all the while.
    """
    rounds, keys = 5, "fraction-evaluate = 0.0\nnormalize = true\n"
    written = hospital.blocks["user run"].replace("rounds = 3\n", f"rounds = {rounds}\n{keys}")
    monkeypatch.setitem(hospital.blocks, "user run", written)
    folder, superlink = results(hospital, "first"), hospital.services["superlink"]
    with ThreadPoolExecutor() as pool:
        run = pool.submit(hospital.run, "user run", "user", may_fail=True)
        wait_for(lambda: rounds_done(folder) >= 1 or run.done())
        assert not run.done(), run.result()
        known = bits_of_a_round(folder)
        log = kill_a_site(hospital, folder)
        wait_for(lambda: len(rounds_trained(folder, 1)) >= 2)
        superlink.restart_after = 1
        kill_superlink(superlink)
        output = run.result(timeout=LONG)
    assert known[1] == simulated(cache_dir, known[0], normalize=True)
    done = rounds_done(folder)
    assert done < rounds
    missed = sorted(set(range(1, done + 1)) - set(rounds_trained(folder, 1)))
    assert missed, output
    assert missed == list(range(missed[0], missed[-1] + 1))
    assert 1 < missed[0] <= missed[-1] < done
    assert f"{missed[0]},train,1,Error: Node Unavailable" in (folder / "failures.csv").read_text()

    wait_for(lambda: superlink.starts == 2)
    assert wait_until_answers(hospital.port)
    output = hospital.run("user resume", "user")
    resumed = re.search(f"resuming {folder} after round ([0-9])", output)
    assert resumed, output
    assert f"round {int(resumed[1]) + 1}: " in output
    assert rounds_done(folder) == rounds
    came_back, *_, last = map(int, re.findall("client memory: round ([0-9]+)", log()))
    assert last == rounds - 1
    # It may have died when its memory of the round was written, and its answer not yet sent.
    assert came_back in {missed[0] - 1, missed[0]}
    lost = {(came_back, 1)} - {(missed[0] - 1, 1)}
    assert model(folder) == simulated(
        cache_dir, rounds, {(r, 1) for r in missed} - lost, lost, normalize=True
    )


def online(guide):
    """The SuperNodes that are connected, as ``flwr supernode list`` has them."""
    listed = subprocess.run(
        ["flwr", "supernode", "list", "hospital", "--format", "json"],
        env=guide.environment("user"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [n for n in json.loads(listed.stdout)["nodes"] if n["status"] == "online"]


def test_strangers_get_in_nowhere(hospital, tmp_path):
    """Without a registered key, without a key, without TLS, or trusting another authority."""
    guide, user = hospital, hospital.folder / "user"
    environment = guide.environment("user") | {"HOME": str(tmp_path)}
    subprocess.run(
        ["bash", ROOT / "deploy/certificates.sh", tmp_path / "other", "localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key], check=True)
    tls, signed = ["--root-certificates", user / "ca.crt"], ["--auth-supernode-private-key", key]
    other = ["--root-certificates", tmp_path / "other/ca.crt"]
    proxied = f"localhost:{guide.open_port}"
    attempts = {
        "Failed to activate SuperNode": (proxied, *tls, *signed),
        "All SuperNodes must be registered": (proxied, *tls),
        "certificate verify failed": (proxied, *other, *signed),
        "could not establish a connection": (proxied, "--insecure"),
    }
    logs = [tmp_path / f"log-{i}" for i in range(len(attempts))]
    strangers = [
        subprocess.Popen(
            ["flower-supernode", "--port", str(free_port()), "--max-retries", "1", "--isolation", "process",
             "--node-config", "partition-id=0", "--superlink", *arguments],
            env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT,
        )
        for log, arguments in zip(logs, attempts.values(), strict=True)
    ]  # fmt: skip
    for stranger, log, reason in zip(strangers, logs, attempts, strict=True):
        assert stranger.wait(timeout=LONG) != 0
        assert reason in log.read_text()
    nodes = online(guide)
    assert len(nodes) == len(SITES)


def test_the_proxy_lets_nothing_through_but_what_supernodes_need(hospital):
    if not hospital.nginx:
        pytest.skip("nginx is not installed")
    trusted = ssl.create_default_context(cafile=hospital.folder / "user/ca.crt")
    answers = {}
    for path in (
        "/v1/fleet/pull-messages", "/v1/control/list-runs", "/v1/runtime/acquire-task", "/",
        "/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control/list-runs", "//v1/control/list-runs",
    ):  # fmt: skip
        connection = HTTPSConnection("localhost", hospital.open_port, context=trusted, timeout=LONG)
        connection.request("POST", path, body=b"")
        answers[path] = connection.getresponse().status
        connection.close()
    assert answers.pop("/v1/fleet/pull-messages") == 415  # the SuperLink's own answer
    assert set(answers.values()) == {403}
