"""What clients gain over training alone: by hand, from folders that are written by hand, and from a sweep."""

import json

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.cli import main
from fedbn_flower.results.report.runs_by_seed import Group
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.compare import read_groups
from fedbn_flower.study.comparisons import gain as module
from fedbn_flower.study.comparisons.gain import gain_table, gains_of
from fedbn_flower.study.statistics.case_metrics import METRICS
from fedbn_flower.study.statistics.paired import paired_bootstrap

from ...results.html_page import Page, page
from ...results.test_cases import LOCALLY, TEN, of_sites
from ...results.written import csv_rows, summary_of, write_run


def cases(right, n=100):
    """Cases of sites 0, 1, ..., of each of which the first so many are right."""
    target = np.tile(np.arange(n) % 2, len(right))
    hit = np.concatenate([np.arange(n) < hits for hits in right])
    site = np.repeat([str(i) for i in range(len(right))], n)
    score = np.where(hit, target, 1 - target).astype(float)
    return pd.DataFrame(
        {"site": site, "id": np.arange(len(site)), "group": None, "target": target, "score": score}
    )


@pytest.fixture
def written(tmp_path):
    """Write a run by the percentage of its clients' cases that are right, and return its group."""

    def write(name, right, reference="none", kept=True, n=100, higher="accuracy", **more):
        summary = summary_of([hits / n for hits in right], **{"higher-is-better": [higher]})
        folder = write_run(tmp_path / name, summary, reference=reference, **more)
        if kept:
            cases(right, n).to_parquet(folder / "predictions.parquet")
        return Group({"folder": name}, [Run.read(folder)])

    return write


def test_by_hand(written):
    """Alone 80, 70, 60 and 50 of 100 are right, together 50, 68, 75 and 95: losses of 30 and 2 points."""
    groups = [written("alone", [80, 70, 60, 50], "alone"), written("shared", [50, 68, 75, 95])]
    (found,) = gains_of(groups, "accuracy")
    assert (found.group, found.metric) == ("shared", "accuracy")
    assert [one.client for one in found.clients] == list("0123")
    assert [one.gain for one in found.clients] == pytest.approx([-0.3, -0.02, 0.15, 0.45])
    for one, (alone, together) in zip(found.clients, [(80, 50), (70, 68), (60, 75), (50, 95)], strict=True):
        pair = [cases([0] * int(one.client) + [hits]) for hits in (together, alone)]
        pair = [part[part.site == one.client] for part in pair]
        expected = paired_bootstrap(*pair, METRICS["accuracy"], level=1 - 0.05 / 4)
        assert one.ends == pytest.approx((expected.low, expected.high))
    assert found.worse_off == (4, 2, 1, 2)  # 0 surely loses; 2 and 3 surely gain
    assert found.mean == pytest.approx(0.07)
    table = gain_table([found])
    assert table.rows == [["shared", "4", "2 (50 %)", "1 to 2", "+7.0 points", "-30.0 points (client 0)"]]
    assert gains_of(groups, "loss")[0].clients[0].ends is None  # the cases do not give the loss


def test_where_lower_is_better_the_interval_is_turned(written):
    """Were accuracy a loss: a gain of 20 points is a loss of so many, and its interval the mirrored one."""
    up, down = (
        gains_of(
            [written(f"a{word}", [70], "alone", higher=word), written(f"s{word}", [90], higher=word)],
            "accuracy",
        )[0].clients[0]
        for word in ("accuracy", "none")
    )
    assert (up.gain, down.gain) == pytest.approx((0.2, -0.2))
    assert down.ends == pytest.approx((-up.ends[1], -up.ends[0]))
    assert up.ends[0] > 0


def test_without_cases_the_share_is_known_and_no_interval(written):
    groups = [written("alone", [80, 70], "alone", kept=False), written("shared", [90, 60])]
    (found,) = gains_of(groups, "accuracy")
    assert not found.has_intervals
    assert found.worse_off == (2, 1, 0, 2)
    table = gain_table([found])
    assert table.rows[0][2:4] == ["1 (50 %)", "not known"]
    assert "it is not known how many" in table.note
    groups = [written("alone too", [80, 70], "alone"), written("shared too", [90, 60])]
    cases([90]).to_parquet(groups[1].runs[0].folder / "predictions.parquet")  # of one client alone
    assert not gains_of(groups, "accuracy")[0].has_intervals


def test_a_client_without_a_value_is_named(written, tmp_path):
    """As one without events, of an AUROC; it is no part of the number of clients."""
    groups = [written("alone", [80, 70], "alone"), written("shared", [90, 60])]
    found = json.loads((path := tmp_path / "shared" / "summary.json").read_text())
    found["clients"]["1"] |= {"accuracy": None, "name": "Porto"}
    path.write_text(json.dumps(found))
    table = gain_table(gains_of([groups[0], Group({}, [Run.read(path.parent)])], "accuracy"))
    assert table.rows[0][1] == "1"
    assert table.note.endswith("Porto has no accuracy, and no part in this.")


def test_a_client_that_has_a_value_under_another_seed_takes_part(written, tmp_path):
    """Client 1 has none together of seed 0; 0 has none alone, of both seeds."""
    names = {(seed, kind): f"{kind}-{seed}" for kind in ("alone", "shared") for seed in (0, 1)}
    for (seed, kind), name in names.items():
        written(name, [80, 70, 60], "alone" if kind == "alone" else "none", seed=seed)
        found = json.loads((path := tmp_path / name / "summary.json").read_text())
        if kind == "alone" or seed == 0:
            found["clients"]["0" if kind == "alone" else "1"]["accuracy"] = None
        path.write_text(json.dumps(found))
    groups = [
        Group({"folder": kind}, [Run.read(tmp_path / names[seed, kind]) for seed in (0, 1)])
        for kind in ("alone", "shared")
    ]
    (found,) = gains_of(groups, "accuracy")
    assert [(one.seed, one.client) for one in found.clients] == [(0, "2"), (1, "1"), (1, "2")]
    assert gain_table([found]).note.endswith("0 has no accuracy, and no part in this.")


def test_few_cases_and_many_clients_have_none(written, monkeypatch):
    groups = [written("alone", [80, 70], "alone"), written("shared", [90, 60])]
    monkeypatch.setattr(module, "MOST", 1)
    assert not gains_of(groups, "accuracy")[0].has_intervals
    monkeypatch.setattr(module, "MOST", 2)
    assert gains_of(groups, "accuracy")[0].has_intervals
    for n, enough in ((30, True), (29, False)):
        few = [written(f"{name}{n}", [20], name, n=n) for name in ("alone", "none")]
        assert gains_of(few, "accuracy")[0].has_intervals == enough
    monkeypatch.setattr(module, "cost", lambda metric: 2)  # of what takes longer than a mean
    assert not gains_of(groups, "accuracy")[0].has_intervals


def test_only_runs_on_the_same_cases_are_paired_with_one_alone(written):
    alone, one, two = written("alone", [80, 70], "alone"), written("one", [80, 70]), written("two", [90, 60])
    for more in ({"seed": 1}, {"num_clients": 3}, {"partition": "iid"}, {"data": "other"}, {"fold": 2}):
        (key,) = more
        assert gains_of([alone, written(key, [90, 60], **more)], "accuracy") == []
    for groups in ([one, two], [alone], []):
        assert gains_of(groups, "accuracy") == []


def test_of_several_that_train_alone_it_is_the_most_alike(written):
    """A sweep of two rates: each is compared with its own rate."""
    groups = []
    for lr, alone, shared in (("0.1", 80, 90), ("0.2", 60, 61)):
        for reference, hits in (("alone", alone), ("none", shared)):
            (run,) = written(f"{reference}{lr}", [hits], reference).runs
            groups.append(Group({"reference": reference, "client-lr": lr}, [run]))
    found = gains_of(groups, "accuracy")
    assert [one.clients[0].alone for one in found] == [0.8, 0.6]
    assert [one.mean for one in found] == pytest.approx([0.1, 0.01])


def test_clients_are_counted_over_seeds(written):
    alone = [*written("alone0", [80], "alone", seed=0).runs, *written("alone1", [70], "alone", seed=1).runs]
    shared = [*written("shared0", [70], seed=0).runs, *written("shared1", [90], seed=1).runs]
    both = [Group({"folder": "alone"}, alone), Group({"folder": "shared"}, shared)]
    (found,) = gains_of(both, "accuracy")
    assert [(one.seed, one.alone, one.together) for one in found.clients] == [(0, 0.8, 0.7), (1, 0.7, 0.9)]
    assert gain_table([found]).rows[0][1:3] == ["2", "1 (50 %)"]
    assert gain_table([found]).rows[0][5] == "-10.0 points (client 0, seed 0)"


def test_compare_prints_it_and_draws_it(written, tmp_path, capsys):
    written("alone", [80, 70, 60], "alone")
    written("shared", [90, 60, 65])
    names = [str(tmp_path / name) for name in ("alone", "shared")]
    assert main(["compare", *names, "--to", str(tmp_path / "to")]) == 0
    assert "worse off" in " ".join(capsys.readouterr().out.split())
    text = (tmp_path / "to/compare.md").read_text()
    assert "## gain over training alone, accuracy" in text
    assert "| shared | 3 | 1 (33 %) |" in text
    shown = Page((tmp_path / "to/compare.html").read_text())
    assert "Gain over training alone" in shown.text["h2"]
    assert "Accuracy of each client, alone and with the others" in shown.text["figcaption"]
    assert len(read_groups([tmp_path / "alone", tmp_path / "shared"])) == 2


@pytest.mark.slow
def test_a_sweep_with_a_run_alone_has_it_in_its_report_and_as_a_table(
    tmp_path, cache_dir, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    of_sites(tmp_path / "data")
    words = "--dataset data --label-column ill=no|yes --partition natural:file --num-clients 2 --rounds 2"
    words += (
        " --model linear --strategy fedavg --client shared --reference none,alone --seed 0,1 --backend inline"
    )
    words = [*words.split(), "--cache-dir", str(cache_dir), "--run-dir", "sweep"]
    assert main(words) == 0
    rows = csv_rows(tmp_path / "sweep/gain.csv")
    assert [(row["run"], row["seed"], row["client"]) for row in rows] == [
        ("shared reference=none", seed, site) for seed in "01" for site in ("lyon", "turin")
    ]
    for row in rows:
        values = [
            {c["name"]: c["accuracy"] for c in json.loads(path.read_text())["clients"].values()}[
                row["client"]
            ]
            for name in ("alone", "fedavg-shared-plain")
            for path in [tmp_path / f"sweep/{name}-seed{row['seed']}/summary.json"]
        ]
        assert [float(row["alone"]), float(row["together"])] == values
        assert float(row["gain"]) == pytest.approx(values[1] - values[0])
        assert float(row["gain-low"]) <= float(row["gain"]) <= float(row["gain-high"])
    shown = page(tmp_path / "sweep")
    assert "Gain over training alone" in shown.text["h2"]
    losing = sum(float(row["gain"]) < 0 for row in rows)
    assert any(row[:3] == ["shared reference=none", "4", f"{losing} ({25 * losing} %)"] for row in shown.rows)


@pytest.mark.slow
def test_of_several_classes_too(run, tmp_path):
    keys = TEN | LOCALLY | {"partition": "iid", "client": "shared", "strategy": "fedavg"}
    names = {"alone": "alone", "shared": "none"}
    folders = {name: run(**keys, reference=of, run_dir=tmp_path / name).folder for name, of in names.items()}
    (found,) = gains_of(
        [Group({"folder": name}, [Run.read(folder)]) for name, folder in folders.items()], "loss"
    )
    assert len(found.clients) == 3
    for one in found.clients:
        assert one.gain == pytest.approx(one.alone - one.together)
        assert one.ends[0] <= one.gain <= one.ends[1]
