"""Which of two classes is the event, and that metrics, cases and reports are about it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, f1_score, recall_score, roc_auc_score

from fedbn_flower import simulate
from fedbn_flower.core.errors import UserError
from fedbn_flower.data.events import Event, event_of_two
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.records.cases import predictions_of
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run


@pytest.mark.parametrize(
    ("names", "counts", "expected"),
    [
        (("deceased", "survived"), (221, 31), "deceased"),  # a word that says no never wins, if it is rarer
        (("ja", "nein"), (90, 10), "ja"),
        (("non", "oui"), (10, 90), "oui"),
        (("benign", "malignant"), (1, 2), "malignant"),
        (("abnormal", "normal"), (9, 1), "abnormal"),
        (("False", "True"), (1, 9), "True"),
        (("0", "1"), (1, 9), "1"),
        (("F", "T"), (1, 9), "T"),
        (("COVID negative", "COVID positive"), (1, 9), "COVID positive"),
        (("any finding", "no finding"), (9, 1), "any finding"),
        (("malignant", "non-malignant"), (9, 1), "malignant"),
        (("Befund", "ohne Befund"), (9, 1), "Befund"),
        (("f", "m"), (3, 7), "f"),  # neither says no: the rarer one
        (("A", "B"), (7, 3), "B"),
        (("A", "B"), (3, 7), "A"),
        (("A", "B"), (5, 5), "B"),  # a tie: the second
        (("A", "B"), None, "B"),  # sites do not go by their counts
        (("alive", "healthy"), (3, 7), "alive"),  # both say no: the rarer one
        (("normaliser", "note"), (3, 7), "normaliser"),
    ],
)
def test_a_word_that_says_no_is_no_event_and_else_the_rarer_class_is(
    names: tuple[str, str], counts: tuple[int, int] | None, expected: str
) -> None:
    assert names[event_of_two(names, counts)] == expected


def table(words: tuple[str, str] = ("survived", "deceased"), deaths: float = 0.2) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x = rng.normal(size=240)
    died = rng.random(240) < deaths * np.exp(x) / np.exp(x).mean()
    site = np.repeat(["Nord", "Süd"], 120)
    return pd.DataFrame({"site": site, "x": x.round(3), "outcome": np.where(died, words[1], words[0])})


def run(folder: Path, frame: pd.DataFrame, **keys: object) -> Run:
    path = folder / "data.csv"
    frame.to_csv(path, index=False)
    given = {
        "label_column": "outcome",
        "columns": "x",
        "model": "linear",
        "strategy": "fedavg",
        "client": "fedavg",
        "rounds": 1,
    } | keys
    simulate(
        dataset=str(path), partition="natural:site", num_clients=2, backend="inline",
        metrics="auroc,average-precision,f1,sensitivity", run_dir=str(folder / "run"),
        cache_dir=str(folder / "cache"), **given,
    )  # fmt: skip
    return Run.read(folder / "run")


@pytest.fixture(scope="module")
def of_auto(tmp_path_factory, pictures_never_drawn, draws_always_few) -> Run:
    return run(tmp_path_factory.mktemp("auto"), table(), event="auto", rounds=2, client_lr=0.5)


def test_every_number_is_about_the_event_whichever_word_sorts_last(of_auto: Run) -> None:
    model_card = pytest.importorskip("fedbn_flower.study.methods").model_card
    found = of_auto
    cases = predictions_of(found.folder)
    died = (table()["outcome"] == "deceased").to_numpy()
    assert (found.event, found.config["events"]) == ("deceased", ["deceased"])
    assert 0 < cases["target"].sum() < len(cases) / 2
    pooled = found.summary.pooled or {}
    assert pooled["f1"] == pytest.approx(f1_score(cases["target"], cases["score"] >= 0.5))
    assert pooled["sensitivity"] == pytest.approx(recall_score(cases["target"], cases["score"] >= 0.5))
    assert pooled["auroc"] == pytest.approx(roc_auc_score(cases["target"], cases["score"]), abs=0.03)
    expected = average_precision_score(cases["target"], cases["score"])
    assert pooled["average-precision"] == pytest.approx(expected, abs=0.05)
    (note,) = [note for note in found.learnt if "event" in note.text]
    assert note.text == f"the event is 'deceased': {died.sum()} of 240 examples"
    assert note.decided_by == "event"
    events = int(cases["target"].sum())
    page = run_page(found)
    assert "events (deceased)</th>" in page
    assert not re.search("(?i)class 1|positives", page)
    card = model_card(found)
    assert f"{events} of them events (`deceased`)" in card


def test_the_event_changes_no_training_and_turns_every_number_about_it(of_auto: Run, tmp_path: Path) -> None:
    counts_at = pytest.importorskip("fedbn_flower.study.decisions").counts_at
    turned = run(tmp_path, table(), event="survived", rounds=2, client_lr=0.5)
    one, other = (predictions_of(found.folder) for found in (of_auto, turned))
    models = [(found.folder / "model.safetensors").read_bytes() for found in (of_auto, turned)]
    assert models[0] == models[1]
    assert (one["target"] == 1 - other["target"]).all()
    np.testing.assert_allclose(one["score"], 1 - other["score"], atol=1e-12)
    of_one, of_other = counts_at(one, 0.5), counts_at(other, 0.5)
    assert (of_one.sensitivity, of_one.specificity) == (of_other.specificity, of_other.sensitivity)
    assert not any(note.decided_by for note in turned.learnt if "event" in note.text)


@pytest.mark.parametrize(
    ("frame", "keys", "line"),
    [
        (table(), {"event": "tot"},
         "event: 'tot' is not allowed; expected one of the classes: 'deceased', 'survived'"),
        (table().assign(outcome=[f"c{i % 3}" for i in range(240)]), {"event": "c1"},
         "event: 'c1' is not allowed; expected 'auto': an event is one of two classes; "
         "there are 3 classes, 'c0', 'c1', 'c2'"),
        (table().assign(outcome=np.arange(240) / 7), {"event": "1"}, "these data are of numbers"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_class_is_refused(
    frame: pd.DataFrame, keys: dict[str, str], line: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=re.escape(line)):
        run(tmp_path, frame, **keys)
    assert not (tmp_path / "run").exists()


def test_labels_have_an_event_each(tmp_path: Path) -> None:
    frame = table().assign(
        alive=lambda t: (t["outcome"] == "survived").astype(int), ill=lambda t: (t["x"] > 0.5).astype(int)
    )
    frame = frame.drop(columns="outcome")
    keys = {"label_column": "alive,ill", "problem": "multi-label"}
    given = run(tmp_path, frame, event="alive=0", **keys)
    cases = predictions_of(given.folder)
    alive, ill = ((cases[f"target-{name}"], cases[f"score-{name}"]) for name in ("alive", "ill"))
    assert alive[0].mean() < 0.5
    assert given.config["events"] == ["0", "1"]
    areas = [roc_auc_score(*one) for one in (alive, ill)]
    assert min(areas) > 0.5
    assert (given.summary.pooled or {})["auroc"] == pytest.approx(np.mean(areas), abs=0.03)
    assert json.loads((given.folder / "config.json").read_text())["event"] == "alive=0"
    with pytest.raises(
        UserError, match=r"event: 'alive' is not allowed; expected alive=1 or alive=0 for each"
    ):
        run(tmp_path, frame, event="alive", **keys)


@pytest.mark.parametrize(
    ("words", "event", "expected"),
    [
        (("deceased", "survived"), "auto", Event("deceased", 0, True)),
        (("deceased", "survived"), "survived", Event("survived", 1, False)),
        (("A", "B"), "auto", Event("B", 1, True)),
    ],
)
def test_sites_have_the_same_event_whatever_their_counts(
    words: tuple[str, str], event: str, expected: Event, tmp_path: Path, configured: Any
) -> None:
    for share in (0.1, 0.9):
        rows = table((words[1], words[0]), share)[["x", "outcome"]]
        rows.to_csv(tmp_path / f"{share}.csv", index=False)
        column = f"outcome={words[0]}|{words[1]}"
        keys = {"dataset": "shape:1:2", "columns": "x", "model": "linear"}
        config = configured(**keys, label_column=column, event=event)
        site = inputs_of(config, str(tmp_path / f"{share}.csv"), str(tmp_path / "cache")).dataset
        assert site.events == (expected,)
        assert site.problem.events == (expected.number,)
    server = inputs_of(config).dataset
    assert [one.name for one in server.events] == ["the event" if event == "auto" else event]


@pytest.mark.slow
def test_recalibrated_scores_are_of_the_event(tmp_path: Path) -> None:
    """Once turned, cases are not turned again: a temperature keeps the order, so the AUROC."""
    pytest.importorskip("fedbn_flower.study")
    found = run(tmp_path, table(), rounds=2, client_lr=0.5, val_fraction=0.3, recalibrate="temperature")
    again = found.summary.recalibrated
    assert again
    for site, plain in found.summary.clients.items():
        assert again.clients[site]["auroc"] == pytest.approx(plain["auroc"], abs=0.02)
        assert again.clients[site]["sensitivity"] == plain["sensitivity"]
        assert plain["auroc"] > 0.6
