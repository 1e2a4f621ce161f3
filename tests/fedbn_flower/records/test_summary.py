"""What ``summary.json`` says, as fields: of every version, without a loss, and as the docs list it."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbn_flower import Result
from fedbn_flower.core.errors import UserError
from fedbn_flower.records.summary import TESTED_ON, Summary
from fedbn_flower.records.summary import tested_on as on_whose

from ..results.written import METRICS, summary_of, write_run

ROOT = Path(__file__).resolve().parents[3]
SAVED = ROOT / "tests/fedbn_flower/results/version_0_2_0.zip"
KEYS = [field.alias for field in Summary.model_fields.values()]


def test_the_docs_list_its_keys_in_their_order():
    page = (ROOT / "docs/run-folder.md").read_text()
    section = page.partition("## The summary\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == KEYS


@pytest.mark.parametrize(
    "chosen",
    [
        {"patience": 1, "val_fraction": 0.2, "target": "accuracy=0.1", "metrics": "f1"}
        | {"metrics_by_class": True},
        {"dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3, "holdout_clients": 1, "num_clients": 3},
        {"devices": "uniform", "extension": "examples/plateau.py:Plateau"},
    ],
)
def test_a_run_writes_these_keys_and_no_others(run, chosen):
    """In their order; and what is read of it is all that is in the file."""
    result = run(rounds=2, **{"partition": "iid", **chosen})
    content = json.loads((result.folder / "summary.json").read_text())
    assert list(content) == [key for key in KEYS if key in content]
    found = Summary.read(result.folder, "run-dir")
    assert not found.model_extra
    assert json.dumps(found.as_json()) == json.dumps(content)
    assert result.summary == content


def test_files_of_version_0_2_lose_nothing(tmp_path):
    shutil.unpack_archive(SAVED, tmp_path)
    files = sorted(tmp_path.rglob("summary.json"))
    assert len(files) == 9
    for file in files:
        found = Summary.read(file.parent, "report")
        assert json.dumps(found.as_json(), indent=2) + "\n" == file.read_text()
        assert (found.pooled, found.by_class, found.higher_is_better) == (None, {}, ("accuracy",))


def test_what_later_versions_add_is_kept():
    content = {"rounds": 3, "energy": {"joules": 2.0}, "new-clients": {"mean": {"loss": 1}, "median": {}}}
    found = Summary.model_validate(content)
    assert found.as_json() == {
        "rounds": 3, "new-clients": content["new-clients"], "energy": {"joules": 2.0}
    }  # fmt: skip


def test_the_metrics_that_there_are_by_group():
    content = {"global": None, "mean": {"loss": 1.0}, "client-std": {"loss": 0.5}}
    found = Summary.model_validate(content)
    assert found.by_group == {"mean": {"loss": 1.0}, "client-std": {"loss": 0.5}}
    assert found.main == {"loss": 1.0}
    assert Summary.model_validate({"mean": None, "global": {"loss": 2.0}}).main == {"loss": 2.0}
    assert Summary().main == {}


def test_a_folder_without_one_has_none(tmp_path):
    assert Summary.read(tmp_path, "report") is None
    with pytest.raises(UserError, match=r"run-dir: .* has no summary.json yet"):
        _ = Result(write_run(tmp_path / "run")).summary


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text[:-20], "Unterminated string"),
        (lambda text: text.replace('"accuracy": 0.55', '"accuracy": [1]'), "mean.accuracy"),
        (lambda text: "[]", "has no keys"),
    ],
)
def test_a_damaged_one_is_one_line(tmp_path, refused, change, why):
    folder = write_run(tmp_path / "run", summary_of([0.5, 0.6]), METRICS)
    file = folder / "summary.json"
    file.write_text(change(file.read_text()))
    line = refused("report", folder)
    assert line.startswith(f"report: '{file}' cannot be read (")
    assert why in line


def test_it_says_on_whose_examples_clients_were_evaluated():
    own, everybodys, left_out, unknown, nobody = (
        SimpleNamespace(
            mean={"accuracy": 1.0} if data != "nobody" else None,
            left_out=site,
            eval_data=data,
            per_class=None,
        )
        for data, site in (("local", ""), ("global", ""), ("local", "graz"), ("", ""), ("nobody", "graz"))
    )
    assert on_whose([own, own, unknown, nobody]) == TESTED_ON["local"]
    assert on_whose([everybodys, own]) == f"{TESTED_ON['local']}; in other runs {TESTED_ON['global']}"
    of_left_out = "the site left out is evaluated on all of its examples, none of which is trained on"
    assert on_whose([left_out, left_out]) == of_left_out
    assert on_whose([own, left_out]) == f"{TESTED_ON['local']}; {of_left_out}"
    assert on_whose([unknown, nobody]) == ""


def test_it_says_of_which_class_most_examples_are_that_an_accuracy_is_of():
    def told(names, examples, by="accuracy", others=()):
        of = [{"names": names, "examples": counts} for counts in (examples, *others)]
        runs = [Summary(mean={by: 0.9}, eval_data="global", compared_by=by, per_class=one) for one in of]
        return on_whose(runs).removeprefix(TESTED_ON["global"])

    assert told(["healthy", "flu", "cold"], [917, 50, 33]) == ", of which 91.7 % are 'healthy'"
    assert told(["0", "1"], [1, 1]) == ", of which 50.0 % are class 0"
    assert (
        told(["a", "b", "c"], [49, 31, 20])
        == told(["a", "b"], [0, 0])
        == told([], [])
        == told([], [9, 1])
        == ""
    )
    assert told(["a", "b"], [9, 1], "auroc") == told(["a", "b"], [9, 1], others=[[8, 2]]) == ""
