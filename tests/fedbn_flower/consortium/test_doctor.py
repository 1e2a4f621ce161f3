"""What the doctor finds: each thing is broken once, and its line says what to do."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomli_w
import torch

from fedbn_flower import annexes
from fedbn_flower.cli import main
from fedbn_flower.config.making import run_config
from fedbn_flower.consortium import authority, doctor, log, machine, network, operator
from fedbn_flower.consortium.local import free_port
from fedbn_flower.consortium.site import AtSite, locked
from fedbn_flower.site.ledger import Entry, SiteLedger

from .conftest import line_of

STUDY = {
    "dataset": "shape:2:2", "columns": "age,dose", "label-column": "ill", "model": "mlp-bn",
    "num-clients": 3, "client": "fedbn",
}  # fmt: skip


class Answer(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response_only(self.server.status)
        now = datetime.now(UTC) + self.server.ahead
        self.send_header("Date", format_datetime(now, usegmt=True))
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    """A function that starts a server, with the certificate of a folder if there is one; returns its port."""
    serving = []

    def start(folder=None, ahead=0, status=403):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        server.ahead, server.status = timedelta(seconds=ahead), status
        server.handle_error = lambda *_: None
        if folder:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.pem", folder / "secret/server.key")
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # ends as soon
        serving.append(server)
        return server.server_port

    yield start
    for server in serving:
        server.shutdown()
        server.server_close()


def wrong(findings):
    """The one line with a remedy."""
    (found,) = [one for one in findings if one.remedy]
    line = str(found)
    assert "\n" not in line
    assert line.startswith("wrong")
    return line


def test_nothing_is_wrong_on_a_good_way(folder, serve):
    findings = [*network.of_the_way(f"localhost:{serve(folder)}", folder / "ca.crt")]
    assert [one.what for one in findings] == ["name", "port", "clock", "TLS"]
    assert not [one for one in findings if one.remedy]


def test_a_proxy_in_front_of_a_superlink_that_does_not_run(folder, serve):
    """The port is reached, its certificate is right, and nobody would answer."""
    port = serve(folder, status=502)
    for otherwise in (network.AT_SITE, network.AT_OPERATOR):
        line = wrong(network.of_the_way(f"localhost:{port}", folder / "ca.crt", otherwise))
        assert line.endswith(f"a proxy answers 502 in its place: nothing is behind it; {otherwise}")


def test_a_name_that_nobody_knows(folder, monkeypatch):
    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    line = wrong(network.of_the_way("superlink.example.org:443", folder / "ca.crt"))
    assert "superlink.example.org: [Errno -2] Name or service not known; ask your network's people" in line


def test_a_port_that_is_closed(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for otherwise in (network.AT_SITE, network.AT_OPERATOR):
        line = wrong(network.of_the_way(f"localhost:{port}", folder / "ca.crt", otherwise))
        assert f"localhost:{port}: [Errno 111] Connection refused; {otherwise}" in line
    *_, last = network.of_the_way(f"localhost:{port}", folder / "ca.crt", "")
    assert (last.what, last.remedy) == ("port", "")
    assert last.found.startswith(f"not yet reached: the SuperLink at localhost:{port}: ")


def test_a_proxy_in_the_environment(folder, serve, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy.clinic:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    line = wrong(network.of_the_way(f"localhost:{serve(folder)}", folder / "ca.crt"))
    assert "http://proxy.clinic:3128 is set for https; take it out for this host: no_proxy=localhost" in line


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_proxy_is_told_without_its_password(scheme, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"{scheme}clinic:sec//r@t@proxy.clinic:3128")
    assert f"  {scheme}proxy.clinic:3128 is set for https" in wrong(network.of_proxies("a.example.org"))


def test_a_proxy_that_flower_cannot_use_for_any_host(folder, serve, monkeypatch):
    monkeypatch.setenv("all_proxy", "socks5://proxy.clinic:1080")
    monkeypatch.setenv("no_proxy", "localhost")
    line = wrong(network.of_the_way(f"localhost:{serve(folder)}", folder / "ca.crt"))
    assert "socks5://proxy.clinic:1080 is set for all; unset all_proxy" in line
    monkeypatch.setenv("all_proxy", "proxy.clinic:1080")
    assert not [one for one in network.of_proxies("localhost") if one.remedy]


def test_a_server_without_tls(folder, serve):
    findings = [*network.of_the_way(f"localhost:{serve()}", folder / "ca.crt")]
    assert "speaks no TLS" in wrong(findings)
    assert ("clock", "not known") in [(one.what, one.found) for one in findings]


def test_a_proxy_that_ends_tls(folder, serve, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    authority.make_authority(other, "Clinic proxy")
    authority.make_server_certificate(other, ["localhost"])
    line = wrong(network.of_the_way(f"localhost:{serve(other)}", folder / "ca.crt"))
    assert "the certificate is by CN=Clinic proxy authority, not by this authority; a proxy ends TLS" in line


def test_a_name_that_is_not_in_the_certificate(folder, serve):
    authority.make_server_certificate(folder, ["other.example.org"])
    line = wrong(network.of_the_way(f"localhost:{serve(folder)}", folder / "ca.crt"))
    assert "the certificate is of other.example.org, not of localhost; consortium move --server" in line


@pytest.mark.parametrize(
    ("earlier", "days", "told"),
    [
        (timedelta(days=3), -1, "it was valid until .*consortium renew"),
        (timedelta(days=-1), 3, "set this machine's clock"),
    ],
)
def test_a_certificate_out_of_its_time(earlier, days, told, folder, serve, monkeypatch):
    monkeypatch.setattr(authority, "EARLIER", earlier)
    monkeypatch.setattr(authority, "DAYS_OF_SERVER", days)
    authority.make_server_certificate(folder, ["localhost"])
    assert re.search(told, wrong(network.of_the_way(f"localhost:{serve(folder)}", folder / "ca.crt")))


def test_a_certificate_that_ends_soon_is_said_and_nothing_fails(folder, serve, monkeypatch):
    monkeypatch.setattr(authority, "DAYS_OF_SERVER", 5)
    authority.make_server_certificate(folder, ["localhost"])
    found = network.of_tls("localhost", serve(folder), folder / "ca.crt")
    assert "the operator should renew it" in found.found
    assert not found.remedy


@pytest.mark.parametrize(("seconds", "told"), [(-60, "s ahead of the SuperLink's"), (3600, "s behind")])
def test_a_clock_that_is_off(seconds, told, folder, serve):
    line = wrong(network.of_the_way(f"localhost:{serve(folder, seconds)}", folder / "ca.crt"))
    assert told in line
    assert "timedatectl set-ntp true" in line


def test_other_versions():
    agreed = {**operator.versions(), "flwr": "1.30.0"}
    assert "agreed on 1.30.0; pip install flwr==1.30.0" in wrong(machine.of_versions(agreed))
    assert "agreed on 9.0; pip install no-such-package==9.0" in wrong(
        machine.of_versions({"no-such-package": "9.0"})
    )


@pytest.mark.parametrize("name", ["flwr.app", "torch", "fedbn_flower.nosuch"])
def test_a_version_that_cannot_be_imported_is_one_line(name, monkeypatch, capsys):
    """Of Flower or PyTorch: nothing of ours can start with it. A fault of ours is none of theirs."""

    def load(*_):
        raise ImportError(f"cannot import name 'x' from {name!r}", name=name)

    monkeypatch.setattr(annexes, "load", load)
    if name.startswith("fedbn"):
        with pytest.raises(ImportError):
            main(["doctor"])
        return
    assert main(["doctor"]) == 2
    told = f"error: {name[:5].rstrip('.')}: cannot import name 'x' from {name!r}; pip install fedbn-flower=="
    assert capsys.readouterr().err.startswith(told)


def admit(folder, site, **changed):
    """The list of the sites, as this one has it."""
    operator.admit(folder, site.line())
    if changed:
        consortium = operator.read(folder)
        consortium.sites["lyon"].partition_id = changed["partition_id"]
        operator._tell(folder, consortium)
    shutil.copy(folder / "hospitals.admitted", site.own / "admitted")


def test_a_site_that_is_admitted(folder, site):
    admit(folder, site)
    (key, admitted) = machine.of_key(site)
    assert not key.remedy + admitted.remedy
    assert admitted.found == "in list 1, partition-id 0"


def test_a_key_that_others_can_read(site):
    (site.own / "site.key").chmod(0o644)
    assert "chmod 600" in wrong(machine.of_key(site))


def test_a_key_that_is_not_there(site):
    (site.own / "site.key").unlink()
    assert "./join --data PATH makes one" in wrong(machine.of_key(site))


def test_a_key_that_is_of_another_kind_or_has_a_passphrase(site):
    for words in (
        ["ed25519", "-N", ""],
        ["ecdsa", "-b", "256", "-N", ""],
        ["ecdsa", "-b", "384", "-N", "secret"],
    ):
        (site.own / "site.key").unlink()
        subprocess.run(["ssh-keygen", "-q", "-f", site.own / "site.key", "-t", *words], check=True)
        assert "cannot use" in (line := wrong(machine.of_key(site)))
        assert line.endswith("./join --new-key makes another; then send its line")


def change(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("admitted", b"[1]", "admitted .* is no list .*; ./join --admitted FILE"),
        (
            "admitted",
            b'{"admitted": 1, "signature": ""}',
            "admitted .* is not signed by .*; ./join --admitted",
        ),
        ("studies", b"\xff\n", "studies .* is not allowed; .*move it away"),
        ("admitted-studies/a.toml", b"x = [", "study .* a.toml: cannot read .*; remove "),
        ("admitted-studies/a.toml", b"roundz = 1", "study .*; remove "),
        ("audit/audit.jsonl", b"{}\n", "audit log .* was changed.* moved away, it begins anew"),
        ("audit/head", b"\xff", "audit log .* was changed or taken out; ask"),
        ("state/privacy/data.jsonl", b"\xff\n", "ledger .*; restore the state folder"),
    ],
)
def test_a_damaged_file_is_a_line_and_the_others_are_looked_at(
    file, content, told, folder, site, monkeypatch
):
    """Not one of them is a traceback, or ends the table."""
    monkeypatch.setattr(doctor, "of_the_way", lambda *_: iter(()))
    (site.own / "site.toml").write_text(f'data = "{site.settings.data}"\nport = {free_port()}\n')
    admit(folder, site)
    site.state.mkdir()
    assert not [one for one in doctor.of_site(site) if one.remedy]
    change(site.own / file, content)
    findings = [*doctor.of_site(site)]
    assert re.search(told, wrong(findings)), findings
    assert "temporary files" in [one.what for one in findings]


@pytest.mark.parametrize("text", ["port = 70000", "port = 0", "phone = 1", "["])
def test_a_damaged_site_toml_says_how_it_is_written_anew(text, site, capsys):
    (site.own / "site.toml").write_text(f'data = "/srv"\n{text}\n')
    assert main(["doctor", "--kit", str(site.folder)]) == 2
    assert "remove it, and ./join --data PATH" in capsys.readouterr().err


def test_a_key_that_is_not_registered(folder, site):
    operator.admit(folder, line_of("lyon"))
    shutil.copy(folder / "hospitals.admitted", site.own / "admitted")
    assert "this key is not in list 1; send the operator the line" in wrong(machine.of_key(site))


def test_a_wrong_partition(folder, site):
    admit(folder, site, partition_id=5)
    assert "partition-id 0 in the kit, 5 in list 2; ask the operator for a new kit" in wrong(
        machine.of_key(site)
    )


def test_a_second_supernode(site):
    (site.own / "site.toml").write_text(f'data = "{site.settings.data}"\nport = {free_port()}\n')
    assert not machine.of_second(site, starting=True).remedy
    site.state.mkdir()
    first = locked(site)
    assert "stop it" in wrong([machine.of_second(site, starting=True)])
    assert not machine.of_second(site, starting=False).remedy
    os.close(first)
    assert not machine.of_second(site, starting=True).remedy


def test_a_port_that_something_else_has(site):
    """It bars a SuperNode that starts; at another time it may be this site's own, of the unit's user."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (site.own / "site.toml").write_text(f'data = "{site.settings.data}"\nport = {port}\n')
        address = f"while attempting to bind on address ('127.0.0.1', {port})"
        told = f"none that this user sees, and its port cannot be had: Address already in use ({address})"
        line = wrong([machine.of_second(site, starting=True)])
        assert line == f"wrong  SuperNode          {told}; name a free one: ./join --port N"
        assert str(machine.of_second(site, starting=False)) == f"fine   SuperNode          {told}"
    assert not machine.of_second(site, starting=True).remedy


def test_a_folder_that_this_user_cannot_use(site, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, wanted: not wanted & os.W_OK)
    assert not machine.of_folder("data", site.own, writes=False).remedy
    line = wrong([machine.of_folder("state", site.state, writes=True)])
    assert re.search(r"is of user \d+, group \d+, drwx.*; let user \d+ write to it", line)
    assert "name the right one" in wrong([machine.of_folder("data", site.own / "absent", writes=False)])


def test_a_folder_to_which_this_user_finds_no_way(site, monkeypatch):
    """One above it is closed: it may be there, and its name is no mistake."""
    closed = site.own / "closed"
    (closed / "data").mkdir(parents=True)
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: closed not in Path(path).parents and exists(path))
    monkeypatch.setattr(os, "access", lambda path, _: path != closed)
    line = wrong([machine.of_folder("data", closed / "data", writes=False)])
    assert re.search(rf"{closed} is of user \d+.*; let user \d+ read it", line)


def test_no_folder_for_temporary_files(monkeypatch):
    def full():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(machine.tempfile, "gettempdir", full)
    assert "No usable temporary directory found; make room: 0.2 GiB" in wrong([machine.of_temporary_files()])


def test_a_ledger_whose_last_line_was_cut_off_is_spent_all_the_same(site):
    (site.state / "privacy").mkdir(parents=True)
    (site.state / "privacy" / "data.jsonl").write_text('{"epsilon": 1.5}\n{"epsil')
    assert log.spent({"state-dir": str(site.state)}) == 1.5


def test_full_disks(site, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    assert "make room: 1.0 GiB are needed" in wrong([machine.of_room("disk", site.state, machine.ROOM)])
    assert "temporary files" in wrong([machine.of_temporary_files()])


def test_a_budget_that_is_spent(site):
    config = {"state-dir": str(site.state), "dp-max-epsilon": 1.0}
    assert not machine.of_ledger(config).remedy
    entry = Entry("run", 1, 1, "update", "local", 0.5, 1.0, 1, 1e-5)
    SiteLedger(site.state / "privacy" / "data.jsonl").charge(entry, lambda *_: None)
    assert "is spent, of at most 1; no private study is answered any more" in wrong(
        [machine.of_ledger(config)]
    )
    assert not machine.of_ledger({**config, "dp-max-epsilon": 1000.0}).remedy
    (site.state / "privacy" / "data.jsonl").write_text("{}\n")
    assert "restore the state folder" in wrong([machine.of_ledger(config)])


def table(classes=2, columns="age,dose"):
    rows = "".join(f"{1.5 * i % 11},{i % 7},{i % classes}\n" for i in range(60))
    return f"{columns},ill\n{rows}"


@pytest.mark.parametrize(
    ("text", "study", "told"),
    [
        (table(columns="age,doze"), {}, "dose"),
        (table(classes=3), {}, "in 2 classes, not of 2 in 3 classes"),
        (table(), {"dataset": "shape:1x28x28:10"}, "expected examples of 1x28x28 in 10 classes"),
        (table(), {"columns": "auto"}, "columns: missing"),
        ("", {}, "is empty"),
    ],
)
def test_data_that_are_not_as_the_study_reads_them(text, study, told, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(text)
    node_config = {"data-path": str(path), "state-dir": str(tmp_path), "cache-dir": str(tmp_path / "cache")}
    line = wrong(machine.of_data(run_config({**STUDY, **study}), node_config))
    assert told in line
    assert "mend the data" in line


def test_data_that_are_as_the_study_reads_them_and_memory_that_is_not_enough(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text(table())
    node_config = {"data-path": str(path), "state-dir": str(tmp_path), "cache-dir": str(tmp_path / "cache")}
    findings = [*machine.of_data(run_config(STUDY), node_config)]
    assert not [one for one in findings if one.remedy]
    assert "examples: 48 to train on, 12 to test on" in [one.found for one in findings]
    monkeypatch.setattr(machine, "available_memory", lambda: 10)
    assert "train a smaller model" in wrong(machine.of_data(run_config(STUDY), node_config))


@pytest.mark.parametrize("there", [True, False])
def test_a_gpu_that_the_study_wants(there, tmp_path, monkeypatch):
    """Without its driver a study's model could not be made: the rest is looked at without one."""
    (tmp_path / "table.csv").write_text(table())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H200")
    node_config = {"data-path": str(tmp_path / "table.csv"), "cache-dir": str(tmp_path / "cache")}
    findings = [*machine.of_data(run_config({**STUDY, "device": "cuda"}), node_config)]
    if there:
        assert str(findings[0]) == "fine   GPU                H200"
        assert not [one for one in findings if one.remedy]
    else:
        assert "PyTorch finds none; nvidia-smi shows" in wrong(findings)
    assert [one.what for one in findings[-2:]] == ["memory", "disk"]


def test_an_empty_folder(tmp_path):
    assert "is empty; mend the data" in wrong([machine.of_folder("data", tmp_path, writes=False)])


def test_the_command_looks_at_a_kit_an_operators_folder_and_data(tmp_path, serve, capsys, monkeypatch):
    operator.new(tmp_path / "h", f"localhost:{serve()}", ["lyon"], [], {})
    port = serve(tmp_path / "h")
    text = (tmp_path / "h/consortium.toml").read_text()
    (tmp_path / "h/consortium.toml").write_text(re.sub(r"localhost:\d+", f"localhost:{port}", text))
    assert main(["doctor", "--consortium", str(tmp_path / "h")]) == 0
    assert (tmp_path / "h/doctor.txt").read_text() == capsys.readouterr().out
    (tmp_path / "table.csv").write_text(table())
    (tmp_path / "study.toml").write_text(tomli_w.dumps(STUDY))
    made = operator.make_kit(tmp_path / "h", operator.read(tmp_path / "h"), "lyon")
    (tmp_path / "kit.zip").write_bytes(made)
    shutil.unpack_archive(tmp_path / "kit.zip", tmp_path / "kit")
    kit = str(tmp_path / "kit")
    assert main(["doctor", "--kit", kit]) == 2
    assert "has not joined yet; run ./join --data FOLDER there" in capsys.readouterr().err
    assert main(["consortium", "join", kit, "--data", str(tmp_path / "table.csv")]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    operator.admit(tmp_path / "h", line)
    given = ["--admitted", str(tmp_path / "h/h.admitted"), "--study", str(tmp_path / "study.toml")]
    assert main(["consortium", "join", kit, *given]) == 0
    told = capsys.readouterr().out
    assert "The model is mlp-bn." in told
    assert "fine   data               target: 2 classes" in told
    assert f"start it: {kit}/run" in told
    assert main(["doctor", "--kit", kit, "--study", str(tmp_path / "study.toml")]) == 0
    assert main(["consortium", "join", kit, "--new-key"]) == 0
    assert main(["doctor", "--kit", kit]) == 1
    assert "this key is not in list" in capsys.readouterr().out
    (Path(kit) / "site" / "site.key").chmod(0o644)
    assert main(["doctor", "--kit", kit]) == 1
    assert AtSite(Path(kit)).study_files()
    assert main(["doctor", "--dataset", str(tmp_path / "table.csv"), "--label-column", "ill"]) == 0
