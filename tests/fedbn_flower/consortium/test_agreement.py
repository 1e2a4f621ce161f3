"""consortium.toml, and what the operator does to it."""

import json
import textwrap
import tomllib
from pathlib import Path

import pytest
import tomli_w

from fedbn_flower.cli import main
from fedbn_flower.consortium import admitted, authority, operator
from fedbn_flower.consortium.admitted import read_admitted
from fedbn_flower.consortium.agreement import read, write
from fedbn_flower.consortium.authority import new_key, write_key
from fedbn_flower.core.errors import UserError

from .conftest import SITES, line_of, written


def test_what_is_written_is_read_and_written_alike(folder):
    text = (folder / "consortium.toml").read_text()
    write(folder, read(folder))
    assert (folder / "consortium.toml").read_text() == text
    assert tomllib.loads(text)["sites"] == {name: {"partition-id": i} for i, name in enumerate(SITES)}


@pytest.mark.parametrize("name", ["ly'on", "ly on", "ly\non", "$(id)", "-lyon", "", "../lyon", "Lyon"])
def test_a_name_that_a_shell_would_read_is_refused_in_one_line(name, tmp_path, capsys):
    command = ["consortium", "new", str(tmp_path / "x"), "--server", "a.example.org"]
    command += ["--sites", f"turin,{name}"]
    assert main(command) == 2
    error = capsys.readouterr().err
    what = f"{name!r} is not allowed" if name else "missing"
    allowed = "up to 40 small letters, digits and - between them"
    assert error == f"error: consortium.toml: sites: {what}; expected {allowed}\n"
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("server",), "a.example.org:443; rm -rf /"),
        (("server",), "a.example.org"),
        (("server",), "a.example.org:65536"),
        (("server",), "a.example.org:0"),
        (("server",), "a..b:443"),
        (("server",), f"{'a' * 64}.org:443"),
        (("names",), ["a b"]),
        (("control",), '127.0.0.1:8000"'),
        (("versions", "flwr"), "1.42; echo"),
        (("versions", "flwr"), "1.42 --extra-index-url https://x.org"),
        (("versions", "flwr\n--index-url https://x.org"), "1"),
        (("bounds",), {"dp-required-unit": 'a"b'}),
        (("bounds",), {"secagg-min": 1}),
        (("bounds",), {"data-path": "/"}),
        (("bounds",), {"dp-max-epsilon": 1.0}),
        (("sites", "lyon", "contact"), "Dr. A\n`id`"),
        (("sites", "lyon", "partition-id"), 1),
        (("sites", "lyon", "key"), "ssh-rsa AAAA"),
        (("sites", "lyon", "phone"), "1"),
        (("studies",), {"first": "abc"}),
    ],
)
def test_what_is_not_allowed_is_named(where, value, made, tmp_path):
    content = place = tomllib.loads((made / "consortium.toml").read_text())
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    (tmp_path / "consortium.toml").write_text(tomli_w.dumps(content))
    named = "versions" if "\n" in where[-1] else where[-1].partition("-")[0]
    with pytest.raises(UserError, match=f"^consortium.toml: .*{named}") as refused:
        read(tmp_path)
    assert "bounds: bounds" not in str(refused.value)


def test_a_folder_that_a_unit_would_misread_is_refused(tmp_path, capsys):
    command = ["consortium", "new", str(tmp_path / "a b"), "--server", "a.example.org", "--sites", "lyon"]
    assert main(command) == 2
    assert "a path of letters, digits" in capsys.readouterr().err


def test_keys_are_admitted_replaced_and_removed_and_everybody_is_told(folder):
    path = folder / "hospitals.admitted"
    first, second = line_of("lyon"), line_of("lyon")
    assert operator.admit(folder, first) == "lyon"
    assert read_admitted(path, folder / "ca.crt").sites["lyon"].fingerprint == first.split()[-1]
    with pytest.raises(UserError, match="lyon: has a key already"):
        operator.admit(folder, second)
    operator.admit(folder, second, replaces=True)
    assert read(folder).sites["lyon"].fingerprint == second.split()[-1]
    with pytest.raises(UserError, match="turin: has no key to replace"):
        operator.admit(folder, line_of("turin"), replaces=True)
    operator.add(folder, "lille")
    assert read(folder).sites["lille"].partition_id == 3
    assert (folder / "kits" / "lille.zip").exists()
    operator.remove(folder, "turin")
    told = read_admitted(path, folder / "ca.crt")
    assert (set(told.sites), told.serial) == ({"lyon"}, 3)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda line: line.rsplit(" ", 1)[0], "as join prints it"),
        (lambda line: line[:-1] + ("A" if line[-1] != "A" else "B"), "a part of the line was changed"),
        (lambda line: line.replace("lyon", "paris"), "paris"),
        (lambda line: line.replace("nistp384", "nistp256"), "a public key"),
    ],
)
def test_a_line_that_is_not_joins_is_refused(change, told, folder):
    with pytest.raises(UserError, match=told):
        operator.admit(folder, change(line_of("lyon")))
    assert not read(folder).admitted


def test_a_number_is_that_of_one_site_for_good(folder):
    """Also where all have left: what a run has written of number 2 is of whoever had it then."""
    for site in ("porto", "lyon", "turin"):
        operator.remove(folder, site)
    for number, site in ((3, "lille"), (4, "porto")):
        operator.add(folder, site)
        assert read(folder).sites[site].partition_id == number


def test_a_line_that_a_mail_has_broken_or_quoted_is_joins(folder):
    line = line_of("lyon")
    assert operator.admit(folder, f" '{textwrap.fill(line, 76)}'\r\n") == "lyon"
    assert read(folder).sites["lyon"].key == line.rsplit(" ", 1)[0].partition(" ")[2]


def test_a_key_that_is_not_the_authoritys_signs_nothing(folder):
    """Sites would refuse all that it has signed."""
    write_key(folder / "secret/ca.key", new_key())
    for change in (lambda: operator.renew(folder), lambda: operator.add(folder, "lille")):
        with pytest.raises(UserError, match=r"authority: '.*ca.key' is not the key of its ca.crt"):
            change()


def test_a_list_that_somebody_has_changed_is_refused(folder):
    operator.admit(folder, line_of("lyon"))
    path = folder / "hospitals.admitted"
    path.write_text(path.read_text().replace('\\"serial\\": 1', '\\"serial\\": 9'))
    with pytest.raises(UserError, match="not signed by the authority"):
        read_admitted(path, folder / "ca.crt")


def test_a_superlink_that_is_not_there_leaves_what_was_admitted(folder, capsys, monkeypatch):
    def absent(*_):
        raise UserError("superlink: not there")

    monkeypatch.setattr(operator, "flower", absent)
    assert main(["consortium", "admit", str(folder), line_of("lyon"), line_of("porto")]) == 0
    assert f"then: fedbn-sim consortium register {folder}" in capsys.readouterr().out
    assert set(read(folder).admitted) == {"lyon", "porto"}
    assert main(["consortium", "status", str(folder)]) == 1
    assert "not yet admitted" in capsys.readouterr().out


def test_what_the_superlink_says_is_kept_and_shown(folder, capsys, monkeypatch):
    asked = []

    def superlink(folder, verb, *words):
        asked.append((verb, words[0]))
        nodes = '[{"node-id": "17", "status": "online"}]'
        return (
            f'{{"success": true, "node-id": 17, "nodes": {nodes}}}'
            if verb != "register"
            else 'ok\n{"node-id": 17}'
        )

    monkeypatch.setattr(operator, "flower", superlink)
    assert main(["consortium", "admit", str(folder), line_of("lyon")]) == 0
    assert read(folder).sites["lyon"].node == "17"
    main(["consortium", "status", str(folder)])
    assert "online" in capsys.readouterr().out
    assert main(["consortium", "replace", str(folder), line_of("lyon")]) == 0
    assert main(["consortium", "remove", str(folder), "lyon"]) == 0
    assert [verb for verb, _ in asked] == ["register", "ls", "unregister", "register", "unregister"]


class SuperLink:
    """Flower's, as far as its keys go: one that was taken out is known, and taken no more."""

    def __init__(self, monkeypatch):
        self.keys, self.status = {}, {}
        monkeypatch.setattr(operator, "flower", self.answer)

    def answer(self, folder, verb, *words):
        if verb == "ls":
            nodes = [{"node-id": node, "status": status} for node, status in self.status.items()]
            return json.dumps({"success": True, "nodes": nodes})
        if verb == "unregister":
            if self.status.get(words[0], "unregistered") == "unregistered":
                raise UserError("superlink: [code: 24] Node ID not found for account.")
            self.status[words[0]] = "unregistered"
            return ""
        if (key := Path(words[0]).read_text()) in self.keys:
            raise UserError("superlink: [code: 23] Public key already in use.")
        self.keys[key] = node = str(len(self.keys) + 1)
        self.status[node] = "registered"
        return json.dumps({"success": True, "node-id": node})


def test_a_superlink_that_has_lost_its_keys_or_is_another_machines_gets_them_again(folder, monkeypatch):
    SuperLink(monkeypatch)
    for site in ("lyon", "turin"):
        operator.admit(folder, line_of(site))
    assert operator.register(folder) == ["lyon", "turin"]
    assert operator.register(folder) == []
    other = SuperLink(monkeypatch)
    assert operator.register(folder) == ["lyon", "turin"]
    del other.status["1"], other.status["2"]
    operator.remove(folder, "lyon")
    operator.admit(folder, line_of("turin"), replaces=True)
    assert set(read(folder).sites) == {"turin", "porto"}


def test_a_key_that_is_registered_when_the_command_is_ended_is_found_again(folder, monkeypatch, capsys):
    superlink, line = SuperLink(monkeypatch), line_of("lyon")
    operator.admit(folder, line)
    monkeypatch.setattr(operator, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        operator.register(folder)
    monkeypatch.setattr(operator, "write", write)
    assert operator.register(folder) == ["lyon"]
    assert read(folder).sites["lyon"].node == "1"
    operator.remove(folder, "lyon")
    operator.add(folder, "lyon")
    assert main(["consortium", "admit", str(folder), line]) == 0
    assert "lyon: its key was taken out once; ./join --new-key" in capsys.readouterr().out
    assert superlink.status == {"1": "unregistered"}
    superlink.status["2"] = "online"  # somebody's who is not in consortium.toml
    with pytest.raises(UserError, match="lyon: its key was taken out once"):
        operator.register(folder)


@pytest.mark.parametrize("ending", ["write_admitted", "write"])
def test_a_command_that_failed_does_all_of_it_when_it_is_given_again(ending, folder, monkeypatch):
    """Of a disk that is full: the list that sites get, and the file of the truth, say the same in the end."""
    line, original = line_of("lyon"), getattr(operator, ending)

    def full(*_):
        raise UserError("folder: cannot write")

    for change in (lambda: operator.admit(folder, line), lambda: operator.remove(folder, "lyon")):
        monkeypatch.setattr(operator, ending, full)
        with pytest.raises(UserError, match="cannot write"):
            change()
        monkeypatch.setattr(operator, ending, original)
        change()
        told = read_admitted(folder / "hospitals.admitted", folder / "ca.crt")
        assert {name: site.key for name, site in read(folder).admitted.items()} == {
            name: site.key for name, site in told.sites.items()
        }
        assert told.serial == read(folder).serial


def test_a_list_that_is_missing_is_written_by_each_command(folder, monkeypatch, capsys):
    SuperLink(monkeypatch)
    operator.admit(folder, line := line_of("lyon"))
    (folder / "hospitals.admitted").unlink()
    assert main(["consortium", "admit", str(folder), line]) == 0
    assert "lyon" in read_admitted(folder / "hospitals.admitted", folder / "ca.crt").sites


def test_a_key_of_two_sites_is_refused_before_the_superlink_forgets_one(folder, monkeypatch):
    superlink, lyon, turin = SuperLink(monkeypatch), line_of("lyon"), line_of("turin")
    for line in (lyon, turin):
        operator.admit(folder, line)
    operator.register(folder)
    with pytest.raises(UserError, match="another than that of lyon"):
        operator.admit(folder, lyon.replace("lyon", "turin"), replaces=True)
    assert set(superlink.status.values()) == {"registered"}


@pytest.mark.parametrize(
    "words", [["renew"], ["admit", "LINE"], ["move", "--server", "b.org"], ["remove", "turin"]]
)
def test_a_full_disk_is_one_line(words, folder, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    for module, name in ((authority, "write_atomically"), (admitted, "write_atomically")):
        monkeypatch.setattr(module, name, full)
    verb, *rest = (line_of("lyon") if word == "LINE" else word for word in words)
    before = (folder / "consortium.toml").read_text()
    assert main(["consortium", verb, str(folder), *rest]) == 2
    told = f"consortium: cannot finish {verb!r} at {str(folder)!r} ([Errno 28] No space left on device)"
    assert capsys.readouterr().err == f"error: {told}\n"
    assert (folder / "consortium.toml").read_text() == before


def test_what_could_not_be_made_can_be_made_again(folder, tmp_path, monkeypatch):
    def full(*_):
        raise UserError("to: cannot write")

    monkeypatch.setattr(operator, "write_kit", full)
    for change in (
        lambda: operator.new(tmp_path / "x", "a.example.org", ["lyon"], [], {}),
        lambda: operator.add(folder, "lille"),
    ):
        with pytest.raises(UserError, match="cannot write"):
            change()
    assert not (tmp_path / "x").exists()
    assert set(read(folder).sites) == {*SITES}


def test_the_superlink_moves(folder):
    operator.admit(folder, line_of("lyon"))
    operator.move(folder, "other.example.org:8443")
    assert read_admitted(folder / "hospitals.admitted", folder / "ca.crt").server == "other.example.org:8443"
    assert "server_name other.example.org;" in (folder / "superlink/nginx.conf").read_text()
    with pytest.raises(UserError, match="server"):
        operator.move(folder, "a b")


STUDIES = [
    ({"roundz": 2}, "configuration: unknown name 'roundz' (did you mean 'rounds'?)"),
    ({"rounds": -2}, "rounds: -2 is not allowed"),
    ({"client": "nosuch"}, "client: unknown name 'nosuch'"),
    ({"num_clients": None}, "num-clients: missing; expected 3, as many sites as consortium.toml has"),
    ({"num_clients": 4}, "num-clients: 4 is not allowed; expected 3, as many sites"),
    ({"clip_update_norm": None}, "clip-update-norm: 0.0 is not allowed; expected a number"),
    ({"model": "cnn"}, "model: 'cnn' is not allowed"),
    ({"dataset": None}, "dataset: missing; expected shape:SIZES:OUTPUTS"),
    ({"dataset": "digits"}, "dataset: 'digits' is not allowed; expected shape:SIZES:OUTPUTS"),
    ({"dataset": "shape:1x28x28:10"}, "columns: 'age,dose,sex=f|m' is not allowed; expected 'auto' with"),
    ({"dataset": "shape:3:2"}, "dataset: 'shape:3:2' is not allowed; expected shape:4:..., as many"),
    ({"data_path": "/srv"}, "data-path: a site sets it in its node config"),
    ({"secagg_required": True}, "secagg-required: a site sets it in its node config"),
    ({"attack": "label-flip", "attackers": "0"}, "attack: 'label-flip' is not allowed; expected 'none'"),
    (
        {"secagg": "off", "max_num_examples": None},
        "secagg: 'off' is not allowed at this site; expected 'on' (secagg-min); "
        "that is the bound secagg-min = 3 of lyon in consortium.toml",
    ),
]


def test_a_study_that_its_server_or_a_site_would_refuse_is_not_entered(folder, tmp_path, capsys):
    before, text = sorted(folder.rglob("*")), (folder / "consortium.toml").read_text()
    for keys, told in STUDIES:
        study = written(tmp_path / "study.toml", **keys)
        assert main(["consortium", "study", str(folder), "first", str(study)]) == 2, keys
        said = capsys.readouterr()
        assert said.err.startswith(f"error: {told}"), keys
        assert (said.out, said.err.count("\n")) == ("", 1), keys
        assert (sorted(folder.rglob("*")), (folder / "consortium.toml").read_text()) == (before, text)
