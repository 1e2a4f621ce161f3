"""Certificates, and a kit as a site gets it: complete, without a secret, and refused where it was changed."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest
import yaml

from fedbn_flower.cli import main
from fedbn_flower.consortium import doctor, operator, site
from fedbn_flower.consortium.agreement import read
from fedbn_flower.consortium.kits import make_kit
from fedbn_flower.consortium.programs import PROGRAMS, become
from fedbn_flower.consortium.site import locked
from fedbn_flower.core.errors import UserError

from .conftest import unpacked

OPENSSL = ("openssl", "x509", "-noout", "-in")


def test_certificates_are_openssls_too(folder):
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", folder / "ca.crt", folder / "server.pem"]
    subprocess.run(verify, check=True, capture_output=True)
    shown = subprocess.run(
        [*OPENSSL, folder / "server.pem", "-ext", "subjectAltName"],
        check=True,
        capture_output=True,
        text=True,
    )
    names = "DNS:superlink.example.org, IP Address:10.0.0.5, DNS:localhost, IP Address:127.0.0.1"
    assert names in shown.stdout
    before = (folder / "server.pem").read_bytes()
    operator.renew(folder)
    assert (folder / "server.pem").read_bytes() != before
    subprocess.run(verify, check=True, capture_output=True)
    for secret in (folder / "secret").iterdir():
        assert secret.stat().st_mode & 0o077 == 0


def test_a_kit_is_the_same_each_time_and_has_no_secret(folder, tmp_path):
    packed = folder / "kits" / "lyon.zip"
    assert make_kit(folder, read(folder), "lyon") == packed.read_bytes()
    with zipfile.ZipFile(packed) as archive:
        assert not [name for name in archive.namelist() if b"PRIVATE KEY" in archive.read(name)]
    kit = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit").kit
    assert (kit.site, kit.partition_id, kit.bounds) == ("lyon", 0, {"secagg-min": 3})


def test_a_kit_is_a_file(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["consortium", "kit", str(folder), "lyon", "--to", "."]) == 2
    assert capsys.readouterr().err == "error: to: '.' is not allowed; expected a file\n"


def wheel(folder, name, version):
    """A package with a program ``fedbn-sim``, which says with what it was called."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "import sys\n\ndef main():\n    print(*sys.argv[1:])\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\nfedbn-sim = {name}:main\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)


@pytest.mark.slow
def test_join_installs_from_the_wheels_of_a_kit_without_a_registry(folder, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with pytest.raises(UserError, match="a folder with wheels"):
        make_kit(folder, read(folder), "lyon", wheels)
    for name, version in read(folder).versions.items():
        if name != "python":
            wheel(wheels, name.replace("-", "_"), version)
    to = tmp_path / "lyon.zip"
    words = ["consortium", "kit", folder, "lyon", "--to", to, "--wheels", wheels]
    assert main([*map(str, words)]) == 0
    kit = unpacked(to, tmp_path / "kit").folder
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(sys._base_executable)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    ended = subprocess.run(
        ["bash", kit / "join", "--data", "x"], env=environment, capture_output=True, text=True, umask=0o077
    )
    assert ended.stdout == f"consortium join {kit} --data x\n", ended.stderr
    assert (kit / "site").stat().st_mode & 0o777 == (0o700 if os.geteuid() else 0o755)  # for the unit's user


@pytest.mark.parametrize("lacking", ["openssl", "Python 3.11 or later"])
def test_what_join_needs_is_said_before_a_kit_is_doubted(lacking, folder, tmp_path):
    kit = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit").folder
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in (
        "bash",
        "dirname",
        "sha256sum",
        "grep",
        "head",
        "find",
        "cut",
        "sort",
        "comm",
        "id",
        "mkdir",
        "openssl",
    ):
        if name != lacking:
            (programs / name).symlink_to(shutil.which(name))
    (programs / "python3").write_text("#!/bin/bash\nexit 1\n")
    (programs / "python3").chmod(0o755)
    ended = subprocess.run(
        ["bash", kit / "join"], env={"PATH": str(programs)}, capture_output=True, text=True
    )
    told = f"error: {lacking} is not on this machine; have it installed, then run this again\n"
    assert (ended.returncode, ended.stderr) == (2, told)


def test_programs_that_have_gone_are_found_anew_or_said_to_be_missing(folder, tmp_path):
    kit = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit").folder
    nothing = {"PATH": "/usr/bin:/bin"}
    for word in ("run", "leave"):
        ended = subprocess.run(["bash", kit / word], env=nothing, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (
            2,
            "error: kit: fedbn-sim is not there; ./join installs it\n",
        )
    (kit / "site").mkdir()
    (kit / "site/programs").symlink_to(tmp_path / "gone")
    program = tmp_path / "bin" / "fedbn-sim"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    for word in ("join", "run", "leave"):
        ended = subprocess.run(["bash", kit / word], env=environment, capture_output=True, text=True)
        assert ended.stdout == "here\n", ended.stderr


@pytest.mark.slow
def test_join_takes_paths_from_where_it_is_called(folder, tmp_path):
    kit = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit").folder
    program = kit / "site" / "programs" / "fedbn-sim"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    for word, place in (("kit/join", tmp_path), ("./join", kit)):
        ended = subprocess.run(["bash", word], cwd=place, capture_output=True, text=True)
        assert ended.stdout == f"{place}\n", ended.stderr


def weaken(kit):
    text = (kit / "kit.toml").read_text()
    (kit / "kit.toml").write_text(text.replace("secagg-min = 3", "secagg-min = 2"))


def plant(kit):
    (kit / "wheels").mkdir()
    (kit / "wheels" / "torch-9-py3-none-any.whl").write_bytes(b"")


def extend(kit):
    (kit / "MANIFEST").write_text((kit / "MANIFEST").read_text() + f"{'0' * 64}  x\n")


CHANGES = {
    "changed": weaken, "added": plant, "missing": lambda kit: (kit / "run").unlink(), "signed": extend,
    "added: a link": lambda kit: (kit / "wheels").symlink_to(kit.parent),
    "added: a pipe": lambda kit: os.mkfifo(kit / "pipe"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_kit_that_was_changed_is_refused_by_both_before_anything_is_done(what, folder, tmp_path):
    """By ``join``, which needs nothing of ours, and by what it calls."""
    at = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit")
    CHANGES[what](at.folder)
    ended = subprocess.run(["bash", at.folder / "join", "--data", tmp_path], capture_output=True, text=True)
    assert ended.returncode == 2
    what = what.partition(":")[0]
    remedy = ": move it out of here, or ask the" if what == "added" else "; ask the"
    assert re.fullmatch(rf"error: kit: [^:;]*{remedy} operator for another\n", ended.stderr)
    assert not at.own.exists()
    with pytest.raises(UserError, match=f"kit: [^:;]*{what}[^:;]*{remedy} operator for another kit"):
        _ = at.kit


@pytest.mark.parametrize("closed", ["test", "--version"])
def test_what_the_superlinks_unit_could_not_read_is_said_before_it_is_installed(closed, folder, tmp_path):
    """By a stand-in of the program that becomes another user; nothing that installs is there."""
    for name in ("bash", "dirname", "sed"):
        (tmp_path / name).symlink_to(shutil.which(name))
    (tmp_path / "setpriv").write_text(f"#!/bin/bash\n[[ $* != *{closed}* ]]\n")
    (tmp_path / "setpriv").chmod(0o755)
    install = ["bash", folder / "superlink/install"]
    ended = subprocess.run(install, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    what = folder if closed == "test" else PROGRAMS / "fedbn-sim"
    told = (
        f"error: the unit's own user cannot read {what}: have it where everybody may pass, as /srv or /opt\n"
    )
    assert (ended.returncode, ended.stderr) == (2, told)


def test_the_scripts_are_bash_and_units_are_systemds(folder, tmp_path):
    at = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit")
    for script in (at.folder / "join", at.folder / "leave", at.folder / "run", folder / "superlink/install"):
        subprocess.run(["bash", "-n", script], check=True)
        assert os.access(script, os.X_OK)
        assert "lyon" not in script.read_text()
    for unit in (at.folder / "fedbn-supernode.service", folder / "superlink/fedbn-superlink.service"):
        parts = configparser.RawConfigParser(strict=False)
        parts.optionxform = str
        parts.read(unit)
        assert set(parts["Service"]) >= {"ExecStart", "LoadCredential", "DynamicUser", "Restart"}
        assert parts["Service"]["ExecStart"].startswith("/")
        assert parts["Install"]["WantedBy"] == "multi-user.target"
        if analyze := shutil.which("systemd-analyze"):
            result = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, timeout=60)
            told = [line for line in result.stderr.splitlines() if unit.name in line]
            assert not [
                line for line in told if not re.search("Restart(Steps|MaxDelaySec)|/opt/fedbn/run", line)
            ]


def test_the_compose_files_start_what_the_units_start(folder, tmp_path):
    at = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit")
    (supernode,) = yaml.safe_load((at.folder / "compose.yaml").read_text())["services"].values()
    assert supernode["command"] == "/kit/run"
    assert ".:/kit" in supernode["volumes"]
    services = yaml.safe_load((folder / "superlink/compose.yaml").read_text())["services"]
    assert services["superlink"]["command"] == f"fedbn-sim consortium superlink {folder}"
    assert services["proxy"]["image"] == "nginx"
    for service in (supernode, *services.values()):
        assert service["restart"] == "always"
        assert "ports" not in service


@pytest.mark.skipif(not (NGINX := shutil.which("nginx", path="/usr/sbin:/usr/bin")), reason="needs nginx")
def test_the_proxy_is_nginxs(folder, tmp_path):
    server = (folder / "superlink/nginx.conf").read_text()
    (tmp_path / "server.conf").write_text(server.replace("listen 443", f"listen unix:{tmp_path}/socket"))
    main = f"pid {tmp_path}/pid; events {{}} http {{ access_log off; include {tmp_path}/server.conf; }}"
    (tmp_path / "nginx.conf").write_text(main)
    command = [NGINX, "-t", "-e", tmp_path / "log", "-c", tmp_path / "nginx.conf"]
    tested = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert not tested.returncode, tested.stderr


def test_what_is_started_reaches_this_machine_without_a_proxy_and_writes_for_its_user(tmp_path, monkeypatch):
    """A clinic's proxy would get what a SuperNode and its own processes tell each other."""
    monkeypatch.setenv("NO_PROXY", "superlink.example.org")
    begun = []
    monkeypatch.setattr(os, "execve", lambda *words: begun.append((words[-1], os.umask(before))))
    before = os.umask(0o022)
    become(["flower-supernode"], tmp_path)
    ((environment, mask),) = begun
    assert mask == 0o027
    assert environment["no_proxy"] == environment["NO_PROXY"] == "superlink.example.org,127.0.0.1"


@pytest.fixture
def nothing_wrong(monkeypatch):
    """Of the way and the machine, which other tests look at."""
    monkeypatch.setattr(doctor, "of_site", lambda *_: iter(()))


@pytest.mark.usefixtures("nothing_wrong")
def test_a_site_joins_and_is_admitted(folder, tmp_path, capsys):
    at = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit")
    join = ["consortium", "join", str(at.folder)]
    assert main(join) == 2
    assert "data: missing" in capsys.readouterr().err
    assert main([*join, "--data", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    line = told.splitlines()[-1]
    assert read(folder).authority in told
    assert line.startswith("lyon ecdsa-sha2-nistp384 ")
    assert (at.own / "site.key").stat().st_mode & 0o077 == 0
    shown = subprocess.run(
        ["ssh-keygen", "-lf", at.own / "site.key"], capture_output=True, text=True, check=True
    )
    assert line.split()[-1] in shown.stdout

    operator.admit(folder, line)
    assert main([*join, "--admitted", str(tmp_path / "nowhere")]) == 2
    assert "is no list of admitted sites ([Errno 2] No such file" in capsys.readouterr().err
    list_of = ["--admitted", str(folder / "hospitals.admitted")]
    assert main([*join, *list_of]) == 0
    told = capsys.readouterr().out
    assert line.split()[-1] in told
    assert (at.own / "partners" / "lyon.pub").read_text().split() == line.split()[1:3]
    config = at.node_config()
    assert (config["partition-id"], config["secagg-min"], config["data-path"]) == (0, 3, str(tmp_path))
    command = at.command()
    assert command[command.index("--superlink") + 1] == "superlink.example.org:443"
    assert f"ExecStart={at.folder}/run\n" in (at.own / "fedbn-supernode.service").read_text()

    assert main([*join, "--new-key"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] != line
    assert main([*join, *list_of]) == 2
    assert "is not in the list" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_wrong")
def test_two_kits_of_a_machine_leave_each_other_alone(folder, tmp_path, monkeypatch):
    """There is one unit: the second kit neither takes its place nor removes it and what it keeps."""
    done, fails, units, state = [], [], tmp_path / "units", tmp_path / "state"
    for path in (units, state):
        path.mkdir()
    monkeypatch.setattr(site, "UNITS", units)
    monkeypatch.setattr(site, "BOOTED", units)
    monkeypatch.setattr(site, "UNIT_STATE", state)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    kits = [unpacked(folder / "kits" / f"{name}.zip", tmp_path / name) for name in ("lyon", "turin")]
    monkeypatch.setattr(
        site.subprocess,
        "run",
        lambda words, **_: done.append(words[1]) or SimpleNamespace(returncode=words[1] in fails),
    )
    for at in kits:
        site.join(at, tmp_path, None, False, None)
    site.start(kits[0])
    assert kits[0].state == state / "state"  # where its ledger is, for who looks at it and does not run it
    assert kits[1].state == kits[1].own / "state"
    with pytest.raises(UserError, match="run: .* runs this kit; systemctl start"):
        site.run(kits[0])
    (state / "state").mkdir()
    assert not site.runs(kits[0])
    lock = site.locked(kits[0])
    site.start(kits[0])  # anew, by what may be another key
    os.close(lock)
    (state / "state" / "lock").unlink()
    assert not [*(state / "state").iterdir()]
    with pytest.raises(UserError, match="unit: .* is of another kit: ./leave there, or start"):
        site.start(kits[1])
    site.leave(kits[1])
    assert done == ["daemon-reload", "enable", "restart"] * 2
    assert (state / "state").exists()
    fails.append("restart")
    with pytest.raises(UserError, match="unit: systemctl restart .* failed; journalctl"):
        site.start(kits[0])
    site.leave(kits[0])
    assert not [*state.iterdir(), *units.iterdir()]


@pytest.mark.usefixtures("nothing_wrong")
def test_an_older_list_is_refused_and_leaving_keeps_the_log(folder, tmp_path, capsys):
    at = unpacked(folder / "kits" / "lyon.zip", tmp_path / "kit")
    join = ["consortium", "join", str(at.folder)]
    assert main([*join, "--data", str(tmp_path)]) == 0
    operator.admit(folder, at.line())
    older = tmp_path / "older.admitted"
    shutil.copy(folder / "hospitals.admitted", older)
    operator.move(folder, "other.example.org:8443")
    at.own.joinpath("admitted").write_text('{"admitted": 1, "signature": ""}')  # damaged: another is taken
    assert main([*join, "--admitted", str(folder / "hospitals.admitted")]) == 0
    assert at.server == "other.example.org:8443"
    assert main([*join, "--admitted", str(older)]) == 2
    assert "this one is older" in capsys.readouterr().err
    assert (at.own / "cache").stat().st_mode & 0o777 == 0o700
    at.audit.mkdir()
    at.state.mkdir()
    lock = locked(at)
    assert main(["consortium", "leave", str(at.folder)]) == 2
    assert "stop it first" in capsys.readouterr().err
    os.close(lock)
    assert main(["consortium", "leave", str(at.folder)]) == 0
    assert [path.name for path in at.own.iterdir()] == ["audit"]
