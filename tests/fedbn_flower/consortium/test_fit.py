"""A study that fits what sites bring and demand, and one that a site would refuse, by each of its bounds."""

import os
import re
import shutil
import tomllib

import pytest

from fedbn_flower.cli import main
from fedbn_flower.consortium import doctor, network, operator
from fedbn_flower.consortium.agreement import BOUNDS, read, write
from fedbn_flower.consortium.fit import of_bounds, study_config
from fedbn_flower.consortium.kits import make_kit
from fedbn_flower.consortium.site import locked
from fedbn_flower.consortium.studies import study_digest
from fedbn_flower.core.partition_id import name_of_data
from fedbn_flower.site.ledger import Entry, SiteLedger, path_of_ledger

from .conftest import STUDY, unpacked, written

PLAIN = {**tomllib.loads(STUDY), "num-clients": 8}
LOCAL = {
    **{key: value for key, value in PLAIN.items() if key != "secagg"}, "max-num-examples": 0,
    "clip-update-norm": 0.0, "model": "2nn", "client": "shared",
    "dp": "local", "dp-clip": 1.0, "dp-epsilon": 2.0, "dp-delta": 1e-5,
}  # fmt: skip
NOISY = {**LOCAL, "dp-epsilon": 0.0, "dp-noise": 3.0}
EXAMPLE = {**NOISY, "dp": "example", "batch-size": 10, "dp-unit": "sex"}
DELTA = {"dp-max-delta": 1e-5}
REFUSED = [
    ({"secagg-required": True}, PLAIN, {"secagg": "off"}, "secagg: 'off' .* 'on' (secagg-required)"),
    ({"secagg-min": 4}, {**PLAIN, "secagg-min": 4}, {"secagg-min": 3}, "secagg-min: 3 .* at least 4"),
    ({"dp-required": "true"}, LOCAL, {"dp": "client", "fraction-train": 0.5}, "dp: 'client' .* or 'local'"),
    ({"dp-required-unit": "sex"}, EXAMPLE, {"dp-unit": "ward"}, "dp-unit: 'ward' .* 'sex' (dp-req"),
    (DELTA, LOCAL, {"dp-delta": 2e-5}, "dp-delta: 2e-05 .* at most 1e-05"),
    ({"dp-max-clip": 1.0}, LOCAL, {"dp-clip": 1.5}, "dp-clip: 1.5 .* at most 1"),
    ({"dp-min-noise": 3.0}, NOISY, {"dp-noise": 2.9}, "dp-noise: 2.9 .* at least 3"),
    ({"dp-min-noise": 3.0}, EXAMPLE, {"dp-noise": 2.9}, "dp-noise: 2.9 .* at least 3"),
    ({"dp-min-noise": 3.0}, NOISY, {"dp-metrics": 50.0}, "dp-noise: 0.* at least 3"),
    ({"dp-max-epsilon": 2.0, **DELTA}, LOCAL, {"dp-epsilon": 2.1}, "dp-max-epsilon: .* 2.1.. over all runs"),
]
"""Bounds, a study that keeps them, what of it does not keep the first, and what is said of this."""


def admit(folder, site):
    operator.admit(folder, site.line())
    shutil.copy(folder / "hospitals.admitted", site.own / "admitted")


def admit_study(site, study):
    return main(["consortium", "admit-study", str(study), "--kit", str(site.folder)])


def test_the_study_of_the_page_is_entered_admitted_and_read(folder, site, tmp_path, capsys):
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    assert main(["consortium", "study", str(folder), "first", str(study)]) == 0
    admit(folder, site)
    assert admit_study(site, study) == 0
    assert "fine   bound              secagg-min = 3\nadmitted: study\n" in capsys.readouterr().out
    found = [one for one in doctor.of_site(site) if one.what in ("bound", "data")]
    assert not [one for one in found if one.remedy]
    assert "examples: 48 to train on, 12 to test on" in [one.found for one in found]


@pytest.mark.parametrize(("bounds", "keys", "changed", "told"), REFUSED)
def test_a_study_is_compared_with_each_bound_in_a_line(bounds, keys, changed, told):
    kept = [*of_bounds(study_config(keys), bounds)]
    assert [one.found.partition(" = ")[0] for one in kept] == [*bounds]
    assert not [one for one in kept if one.remedy]
    (first, *others) = of_bounds(study_config({**keys, **changed}), bounds)
    assert re.match(told.replace("(", r"\(").replace(")", r"\)"), first.remedy), first
    assert not [one for one in others if one.remedy]


def test_a_study_that_windows_has_saved_is_the_same(tmp_path):
    study = written(tmp_path / "study.toml")
    (tmp_path / "other.toml").write_bytes(study.read_text().replace("\n", "\r\n").encode("utf-8-sig"))
    assert study_digest(tmp_path / "other.toml") == study_digest(study)


def test_no_bound_is_left_out():
    assert {key for bounds, *_ in REFUSED for key in bounds} == BOUNDS


def test_a_budget_counts_what_has_left_before(tmp_path):
    site = {"state-dir": str(tmp_path), "data-path": str(tmp_path / "data"), "dp-max-epsilon": 2.0, **DELTA}
    assert not [one for one in of_bounds(study_config(LOCAL), site) if one.remedy]
    before = Entry("run", 1, 1, "update", "local", 9.0, 1.0, 1, 1e-5)
    SiteLedger(path_of_ledger(tmp_path, name_of_data(site["data-path"]))).charge(before, lambda *_: None)
    (first, _) = of_bounds(study_config(LOCAL), site)
    assert first.remedy.startswith("dp-max-epsilon: with the rounds of this run, epsilon would be 2.")


def test_a_site_does_not_admit_what_it_would_refuse(folder, site, tmp_path, capsys):
    consortium = read(folder)
    consortium.sites["lyon"].bounds = {"secagg-required": True}
    write(folder, consortium)
    (tmp_path / "lyon.zip").write_bytes(make_kit(folder, consortium, "lyon"))
    unpacked(tmp_path / "lyon.zip", site.folder)
    study = written(tmp_path / "study.toml", secagg="off", max_num_examples=0)
    assert admit_study(site, study) == 2
    said = capsys.readouterr()
    assert said.out.count("\nwrong  bound") == 2
    assert said.err == (
        "error: study: this site would refuse a run of study.toml; "
        "ask the operator for another study, or for a kit with other bounds\n"
    )
    assert not (site.own / "studies").read_text()
    assert main(["doctor", "--kit", str(site.folder), "--study", str(study)]) == 1
    assert "wrong  bound              secagg-required = true; secagg: 'off'" in capsys.readouterr().out


def test_the_doctor_refuses_columns_of_what_is_no_table(site, tmp_path, capsys):
    for dataset, told in (("shape:1x8x8:10", "columns: 'age,dose,sex=f|m'"), (None, "dataset: missing")):
        study = written(tmp_path / "study.toml", dataset=dataset)
        assert main(["doctor", "--kit", str(site.folder), "--study", str(study)]) == 2
        assert capsys.readouterr().err.startswith(f"error: {told}")


def test_a_list_that_is_older_than_a_study_is_said_to_be(folder, site, tmp_path, capsys, monkeypatch):
    operator.study(folder, "first", written(tmp_path / "first.toml"))
    admit(folder, site)
    operator.study(folder, "second", study := written(tmp_path / "second.toml", rounds=4))
    assert admit_study(site, study) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(
        r"error: study: list 2 here does not have second.toml \([0-9a-f]{64}\); "
        "the list is older than the study: ask for the new one, then ./join --admitted FILE\n",
        error,
    )
    shutil.copy(folder / "hospitals.admitted", site.own / "admitted")
    assert admit_study(site, study) == 0


def test_a_site_joins_before_the_superlink_runs(folder, site, capsys, monkeypatch):
    def refused(*_, **__):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(network, "of_name", lambda host: network.Finding("name", host))
    monkeypatch.setattr(network.socket, "create_connection", refused)
    join = ["consortium", "join", str(site.folder)]
    assert main(join) == 0
    told = capsys.readouterr().out
    assert "not yet reached: the SuperLink at superlink.example.org:443: [Errno 111]" in told
    assert told.endswith(f"over the telephone:\n{site.line()}\n")
    operator.admit(folder, site.line())
    assert main([*join, "--admitted", str(folder / "hospitals.admitted")]) == 1
    assert "wrong  port               superlink.example.org:443: [Errno 111]" in capsys.readouterr().out


def test_a_site_more_or_less_needs_another_study(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(operator, "register", lambda _: [])
    consortium = ["consortium", "study", str(folder)]
    assert main([*consortium, "first", str(three := written(tmp_path / "study.toml"))]) == 0
    to_send = f"send all sites {folder}/hospitals.admitted\n"
    assert capsys.readouterr().out.endswith(f"{to_send}send them {three}, too\n")
    operator.add(folder, "lille")
    assert main(["consortium", "register", str(folder)]) == 0
    told = "no study is of the 4 sites that there are now (num-clients): enter another\n"
    assert capsys.readouterr().out == to_send + told
    four = written(tmp_path / "four.toml", num_clients=4)
    assert main([*consortium, "second", str(four)]) == 0
    assert main(["consortium", "remove", str(folder), "porto"]) == 0
    assert "(num-clients)" not in capsys.readouterr().out
    assert main(["consortium", "remove", str(folder), "lyon"]) == 0
    assert capsys.readouterr().out == to_send + told.replace("4", "2")


def test_a_supernode_that_runs_is_not_to_be_started(folder, site, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "of_site", lambda *_: iter(()))
    operator.admit(folder, site.line())
    join = ["consortium", "join", str(site.folder), "--admitted", str(folder / "hospitals.admitted")]
    assert main(join) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"start it: {site.folder}/run")
    site.state.mkdir()
    lock = locked(site)
    assert main(join) == 0
    os.close(lock)
    assert capsys.readouterr().out.splitlines()[-1].startswith("the SuperNode runs, and goes by all this")
