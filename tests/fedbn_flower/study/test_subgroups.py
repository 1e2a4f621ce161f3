"""Subgroups in summary.json, subgroups.csv and the report, against the cases of the file by hand."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from fedbn_flower import UserError
from fedbn_flower.records.cases import predictions_of
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.methods import model_card, paragraphs
from fedbn_flower.study.statistics.intervals import exact
from fedbn_flower.study.statistics.subgroups import difference
from fedbn_flower.study.subgroups import in_words

from ..results.html_page import page
from ..results.test_cases import BINARY, LOCALLY, PRIVATE, TEN, X, Y, of_sites

SEX = np.where(np.arange(400) % 20 == 19, "", np.where(X[:, 1] > 0, "f", "m"))
"""One in twenty of no sex that is known."""


@pytest.fixture
def patients(tmp_path):
    """Two sites; sex and age, which is the row's number."""
    return of_sites(tmp_path / "data", sex=SEX, age=np.arange(400)) | {"columns": "a,b,c,d"}


def test_each_subgroup_has_the_metrics_of_its_cases(run, patients):
    result = run(**patients, subgroups="sex,age>=200", metrics=["accuracy", "auroc"], val_fraction=0)
    cases, found = predictions_of(result.folder), result.summary["subgroups"]
    divided = [column for column in cases.columns if column.startswith("subgroup-")]
    assert divided == ["subgroup-sex", "subgroup-age>=200"]
    assert list(found["by"]) == ["sex", "age>=200"]
    for attribute, of in found["by"].items():
        words = cases[f"subgroup-{attribute}"]
        assert [one["subgroup"] for one in of] == [
            *sorted(words.dropna().unique()),
            *([None] * int(words.isna().any())),
        ]
        assert sum(one["cases"] for one in of) == len(cases)
        for one in of:
            part = cases[words.isna() if one["subgroup"] is None else words == one["subgroup"]]
            assert (one["cases"], one["events"]) == (len(part), part.target.sum())
            assert {site: of_site["cases"] for site, of_site in one["clients"].items()} == {
                site: len(of_site) for site, of_site in part.groupby("site")
            }
            if one["cases"] < 30:
                assert one["metrics"] == one["intervals"] == {}
                continue
            right = int(((part.score >= 0.5) == part.target).sum())
            ends = binomtest(right, len(part)).proportion_ci(0.95, "exact")
            assert one["metrics"]["accuracy"] == pytest.approx(right / len(part))
            assert one["intervals"]["accuracy"] == pytest.approx([ends.low, ends.high], rel=1e-9)
            assert one["metrics"]["auroc"] == pytest.approx(roc_auc_score(part.target, part.score), abs=5e-3)
    f, m = ((cases["subgroup-sex"] == sex) for sex in "fm")
    hits, of = ([int(((p.score >= 0.5) == p.target).sum()) for p in (cases[f], cases[m])], [f.sum(), m.sum()])
    shares = [h / n for h, n in zip(hits, of, strict=True)]
    high, low = (np.argmax(shares), np.argmin(shares))
    gap = found["differences"]["sex"]["accuracy"]
    assert (gap["higher"], gap["lower"]) == ("fm"[high], "fm"[low])
    expected = difference(exact(hits[high], of[high]), exact(hits[low], of[low]))
    assert [gap["difference"], *gap["interval"]] == pytest.approx(expected)
    every = [one for of in found["by"].values() for one in of if one["subgroup"] and one["metrics"]]
    worst = min(every, key=lambda one: one["metrics"]["accuracy"])
    assert found["worst"]["subgroup"] == worst["subgroup"]
    assert found["worst"]["value"] == worst["metrics"]["accuracy"]
    assert (found["worst"]["interval"], found["worst"]["of"]) == (worst["intervals"]["accuracy"], len(every))


def test_the_report_and_the_table_say_the_same(run, patients):
    result = run(**patients, subgroups="sex")
    found = result.summary["subgroups"]
    of_one = found["by"]["sex"][0]["intervals"]
    of_several = run(**patients, subgroups="sex,age>=200,file").summary["subgroups"]["by"]["sex"][0][
        "intervals"
    ]
    assert of_several["accuracy"] == of_one["accuracy"]
    assert of_several["loss"] != of_one["loss"]  # of a bootstrap of a third as many draws
    assert of_several["loss"] == pytest.approx(of_one["loss"], rel=0.15)
    shown = page(result.folder)
    assert "Subgroups" in shown.text["h2"]
    for one in found["by"]["sex"]:
        row = next(row for row in shown.rows if row[0] == (one["subgroup"] or "no value") and len(row) == 5)
        assert row[1:3] == [str(one["cases"]), str(one["events"])]
        if one["metrics"]:
            low, high = one["intervals"]["accuracy"]
            assert row[4] == f"{100 * one['metrics']['accuracy']:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
        else:
            assert row[3:] == ["not known", "not known"]
    for line in in_words(found):
        assert line in shown.text["p"]
    few = next(one for one in found["by"]["sex"] if one["subgroup"] is None)
    counts = f"{few['cases']} cases, {few['events']} events"
    assert found["note"] == (
        f"How good the model is cannot be known of sex: no value ({counts}): it takes 30 cases and 5 of each "
        "outcome."
    )
    assert any(found["note"] in text for text in shown.text["p"])
    run_read = Run.read(result.folder)
    fairness = paragraphs(run_read)["Fairness"]
    assert fairness.startswith("Metrics were computed for subgroups of the held-out cases, by `sex`. Worst ")
    assert fairness.endswith(found["note"])
    assert "| 14 Fairness | Fairness, above |" in model_card(run_read)
    table = pd.read_csv(result.folder / "subgroups.csv", keep_default_na=False)
    assert (
        table[table.site == ""].cases.sum() == table[table.site != ""].cases.sum() == len(result.predictions)
    )
    f = table[(table.subgroup == "f") & (table.site == "")].iloc[0]
    assert float(f.accuracy) == found["by"]["sex"][0]["metrics"]["accuracy"]
    assert [float(f["accuracy-low"]), float(f["accuracy-high"])] == found["by"]["sex"][0]["intervals"][
        "accuracy"
    ]


@pytest.mark.slow
def test_of_very_many_cases_there_are_values_without_intervals(run, patients, monkeypatch):
    monkeypatch.setattr("fedbn_flower.study.intervals.MOST", 0)
    result = run(**patients, subgroups="sex", metrics=["accuracy", "auroc", "ece"])
    found, cases = result.summary["subgroups"], predictions_of(result.folder)
    f = found["by"]["sex"][0]
    part = cases[cases["subgroup-sex"] == "f"]
    assert f["metrics"]["accuracy"] == pytest.approx(((part.score >= 0.5) == part.target).mean())
    assert set(f["metrics"]) == {"loss", "accuracy", "auroc"}  # the expected calibration error is of states
    assert f["intervals"]["accuracy"] == [None, None]
    assert found["worst"]["interval"] == found["differences"]["sex"]["accuracy"]["interval"] == [None, None]
    assert "No intervals of accuracy, loss, auroc, ece: with 80 cases they take too long." in found["note"]
    assert "Worst subgroup: sex " in next(in_words(found))
    page(result.folder)


def test_the_words_by_hand():
    worst = {"by": "sex", "subgroup": "f", "metric": "accuracy", "value": 0.8, "interval": [0.7, 0.875]}
    pair = {"higher": "m", "lower": "f"}
    of_sex = {"accuracy": pair | {"difference": 0.0512, "interval": [-0.01, 0.12]}}
    of_age = {"loss": pair | {"difference": 0.1, "interval": [0, 1]}}
    found = {"worst": worst | {"of": 4}, "differences": {"sex": of_sex, "age>=65": of_age}}
    assert list(in_words(found)) == [
        "Worst subgroup: sex f, accuracy 80.0 % (70.0 to 87.5), the worst of 4: it was picked by these "
        "cases, and looks worse than it is.",
        "Largest difference by sex: accuracy 5.1 points (-1.0 to 12.0), m over f.",
    ]
    assert list(in_words({"differences": {}})) == []


@pytest.mark.slow
def test_the_rest_of_a_run_stays_as_it_is(run, patients, tmp_path):
    """Also where the column is an input: nothing is learnt otherwise because of its subgroups."""
    keys = patients | {"columns": "a,b,age"}
    runs = [run(**keys, subgroups=text, run_dir=tmp_path / (text or "none")) for text in ("", "age>=200")]
    plain, divided = (one.folder for one in runs)
    assert (plain / "model.safetensors").read_bytes() == (divided / "model.safetensors").read_bytes()
    one, other = (r.predictions for r in runs)
    pd.testing.assert_frame_equal(one, other.drop(columns="subgroup-age>=200"))
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (plain, divided)]
    assert summaries[0]["intervals"] == summaries[1]["intervals"]
    assert summaries[0].keys() ^ summaries[1].keys() == {"subgroups"}
    assert not (plain / "subgroups.csv").exists()


@pytest.mark.slow
def test_arrays_have_them_from_python(run):
    sex = np.array(["f", "m"])[(X[:, 1] > 0).astype(int)]
    result = run(**BINARY, **LOCALLY, subgroups={"sex": (sex[:200], sex[200:])})
    cases = result.predictions
    assert cases["subgroup-sex"].tolist() == sex[200:][cases.id].tolist()
    assert [one["subgroup"] for one in result.summary["subgroups"]["by"]["sex"]] == ["f", "m"]
    resumed = run(resume=result.folder, rounds=2)
    assert resumed.summary["rounds"] == 2
    again = run(**BINARY, **LOCALLY, subgroups={"sex": (sex[:200], sex[200:])}, rounds=2)
    assert resumed.summary["subgroups"] == again.summary["subgroups"]


def test_of_cases_that_all_clients_have_each_counts_once(run):
    """Two clients of one model: pooled values are those of one, and intervals not narrower for two rows."""
    words = np.array(["f", "m"])[(X[:, 1] > 0).astype(int)]
    keys = {"eval_data": "global", "client": "shared", "subgroups": {"sex": (words[:200], words[200:])}}
    result = run(**BINARY, **keys)
    found, cases = result.summary["subgroups"], predictions_of(result.folder)
    assert len(cases) == 400
    assert found["note"].startswith("All clients have the same cases")
    one_client = cases[cases.site == "0"]
    for one in found["by"]["sex"]:
        part = one_client[one_client["subgroup-sex"] == one["subgroup"]]
        assert (one["cases"], one["events"]) == (len(part), part.target.sum())
        right = ((part.score >= 0.5) == part.target).mean()
        assert one["metrics"]["accuracy"] == pytest.approx(right)
        assert "clients" not in one
        low, high = one["intervals"]["accuracy"]
        usual = exact(int(right * len(part) + 0.5), len(part))
        assert high - low == pytest.approx(usual.high - usual.low, rel=0.15)


def test_of_several_classes_there_are_no_events(run):
    third = np.arange(1300) % 3
    result = run(**TEN, **LOCALLY, client="shared", subgroups={"third": (third[:900], third[900:1300])})
    found = result.summary["subgroups"]
    values = {one["subgroup"]: one["metrics"]["accuracy"] for one in found["by"]["third"]}
    counts = {one["subgroup"]: one["cases"] for one in found["by"]["third"]}
    assert counts == {"0": 134, "1": 133, "2": 133}
    for one in found["by"]["third"]:
        assert "events" not in one
        assert set(one["metrics"]) == {"loss", "accuracy"}
    gap = found["differences"]["third"]["accuracy"]
    shares = [
        exact(round(values[name] * counts[name]), counts[name], 1 - 0.05 / 3)  # three pairs
        for name in (max(values, key=values.get), min(values, key=values.get))
    ]
    assert [gap["difference"], *gap["interval"]] == pytest.approx(difference(*shares))
    assert gap["pairs"] == 3


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"subgroups": {"sex": ("f", "m")}, "data": None}, "^subgroups: arrays are given without data; "),
        ({"subgroups": "sex"}, "^subgroups: 'sex' is not allowed; expected none: the data are no table"),
        ({"subgroups": ["sex"]}, r"^subgroups: \['sex'\] is not allowed; expected text, or a mapping"),
        (
            {"subgroups": {"sex": (np.zeros(200, int), np.zeros(200, int))}, **PRIVATE, "strategy": "fedavg"},
            "^subgroups: 'sex' is not allowed; expected none with dp 'client'",
        ),
        (
            {"data": [(X, Y)], "partition": "natural:client", "subgroups": {"a": (0, 1)}},
            "^subgroups: not used with D",
        ),
    ],
)
def test_what_cannot_be_from_python_is_one_line(run, keys, line):
    with pytest.raises(UserError, match=line):
        run(**BINARY | keys)
