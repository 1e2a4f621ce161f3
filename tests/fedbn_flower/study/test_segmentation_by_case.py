"""Masks case by case: predictions.parquet, summary.json, the slices that are shown, and the report."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

from clients.problems.base import in_windows
from clients.problems.surfaces import agreement
from fedbn_flower import UserError
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.records.cases import OVERLAYS_FILE, in_8_bits, overlays_of
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.overlays import overlays

from ..circles import circles, write_circles
from ..server.test_segmentation import KEYS, of_volumes

LOCALLY = {"eval_data": "local", "num_clients": 2, "partition": "iid"}
NAN = float("nan")


def discs():
    """Images and masks of three classes, 14 to train on and 10 to test on: class 2 is hardly learnt."""
    x, y = (np.concatenate(arrays) for arrays in zip(circles(0), circles(1), strict=True))
    y[12:] *= 2
    y[:, 0] = 255
    order = np.random.default_rng(0).permutation(24)
    return x[order[:14]], y[order[:14]], x[order[14:]], y[order[14:]]


def volumes(shape=(10, 14, 12), count=10):
    """Bright boxes in noise, of which the last one has nothing in it."""
    rng = np.random.default_rng(1)
    y = np.zeros((count, *shape), np.uint8)
    for mask in y[:-1]:
        start = rng.integers(0, 6, 3)
        mask[tuple(slice(s, s + 4) for s in start)] = 1
    x = (rng.integers(0, 90, (count, 1, *shape)) + 160 * y[:, None]).astype(np.uint8)
    return x, y


def shown(folder):
    """The report's text, between its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", run_page(Run.read(folder))))


def predicted(result, site, x, windows=()):
    model = result.model(int(site))
    with torch.no_grad():
        inputs = torch.tensor(x).float() / 255
        return (in_windows(model, inputs, windows) if windows else model(inputs)).argmax(1).numpy()


def test_each_case_has_the_metrics_of_the_kept_model(run):
    x, y, x_test, y_test = discs()
    result = run(
        data=(x, y, x_test, y_test), **LOCALLY, client="fedbn", **KEYS | {"rounds": 10, "client_lr": 0.1}
    )
    table = result.predictions
    kinds = ["case-dice", "surface-dice", "hd95"]
    of_one = ["reference-pixels", "predicted-pixels"]
    columns = [f"{name}{s}" for names in (of_one, kinds) for s in ("", "-1", "-2") for name in names]
    assert [*table.columns] == ["site", "new", "split", "id", "source", "group", *columns, "fold", "seed"]
    assert sorted(table.id) == [*range(10)]
    for site, rows in table.groupby("site"):
        said = predicted(result, site, x_test[rows.id][:, None])
        for mask, (_, row) in zip(said, rows.iterrows(), strict=True):
            truth = y_test[row.id]
            counted = np.where(truth == 255, 0, mask)
            each = np.array([agreement(counted == c, truth == c) for c in (1, 2)])
            for c, values in enumerate(each, 1):
                np.testing.assert_equal([row[f"{kind}-{c}"] for kind in kinds], values)
            expected = pd.DataFrame(each).mean().to_numpy()
            np.testing.assert_allclose([row[kind] for kind in kinds], expected)
            assert row["reference-pixels-2"] == (truth == 2).sum()
            assert row["predicted-pixels-1"] == (counted == 1).sum()
    assert 0 < table["hd95"].isna().sum() < 10


@pytest.mark.slow
def test_volumes_are_whole_and_in_voxels(run):
    """Trained on patches, each volume is put together from windows; the tolerance is the one given."""
    x, y = volumes()
    keys = KEYS | {"model": of_volumes, "client_lr": 0.03, "rounds": 12, "patch_size": "6x8x8"}
    result = run(data=(x, y, x, y), **LOCALLY, client="fedbn", surface_tolerance=2.0, **keys)
    table = result.predictions
    for site, rows in table.groupby("site"):
        said = predicted(result, site, x[rows.id], (6, 8, 8))
        for mask, (_, row) in zip(said, rows.iterrows(), strict=True):
            values = agreement(mask == 1, y[row.id] == 1, tolerance=2.0)
            np.testing.assert_equal([row["case-dice"], row["surface-dice"], row["hd95"]], values)
    assert table["case-dice"].max() > 0.5
    found = result.summary["by-case"]
    assert (found["unit"], found["tolerance"]) == ("pixels", 2.0)
    of = overlays_of(result.folder)
    assert sorted(of) == [0, 1]
    for partition, site in of.items():
        rows = site["rows"]
        said = predicted(result, partition, x[rows], (6, 8, 8))
        for i, row in enumerate(rows):
            counts = y[row].sum((1, 2))
            place = min(range(10), key=lambda d, counts=counts: (-int(counts[d]), abs(d - 5), d))
            np.testing.assert_array_equal(site["image"][i], x[row, :, place])
            np.testing.assert_array_equal(site["reference"][i], y[row, place])
            np.testing.assert_array_equal(site["prediction"][i], said[i, place])
        np.testing.assert_array_equal(site["dice"], table.set_index("id").loc[rows, "case-dice"])
        assert (np.diff(site["dice"]) <= 0).all()


def test_with_a_spacing_distances_are_in_millimetres(configured):
    """Of each axis; of pictures, the last two."""
    for spacing, shape, expected in (
        ("3x1x0.5", "1x8x8x8", ((3.0, 1.0, 0.5), 3.0)),
        (2.0, "1x8x8x8", ((2.0, 2.0, 2.0), 2.0)),
        ("3x1x0.5", "1x8x8", ((1.0, 0.5), 1.0)),
        (0.0, "1x8x8", ((), 1.0)),
    ):
        config = configured(dataset=f"shape:{shape}:2:masks", spacing=spacing, model="unet")
        problem = inputs_of(config).dataset.problem
        assert (problem.spacing, problem.tolerance) == expected


def frame():
    """Two sites; the second has a case without a distance and a patient with two cases."""
    return pd.DataFrame(
        {
            "site": ["a"] * 6 + ["b"] * 6,
            "id": range(12),
            "group": [None] * 6 + ["p", "p", "q", "r", "s", "t"],
            "hd95": [1.0, 2, 3, 4, 5, 6, 10, 11, 12, NAN, 14, 20],
        }
    )


def test_means_leave_out_cases_without_a_value_and_say_how_many():
    means_of_cases = pytest.importorskip("fedbn_flower.study.intervals").means_of_cases
    found = means_of_cases(frame(), {"hd95": (0.0, float("inf"))}, seed=3)
    assert found["cases"] == {"a": 6, "b": 6}
    assert found["left-out"] == {"b": {"hd95": 1}}
    assert found["clients"]["a"]["hd95"].value == 3.5
    assert found["clients"]["b"]["hd95"].value == pytest.approx(67 / 5)
    assert found["pooled"]["hd95"].value == pytest.approx(88 / 11)
    assert found["mean"]["hd95"].value == pytest.approx((3.5 + 67 / 5) / 2)


def test_their_intervals_are_those_of_any_mean_over_the_cases_that_have_one(monkeypatch):
    """By the general function, whose score is the value: groups within sites, on a scale of logarithms."""
    Mean = pytest.importorskip("fedbn_flower.study.statistics.case_metrics").Mean
    Cases = pytest.importorskip("fedbn_flower.study.statistics.cases").Cases
    module = pytest.importorskip("fedbn_flower.study.intervals")
    monkeypatch.setattr("fedbn_flower.study.statistics.intervals.FEWEST_OF_LONG_TAILS", 2)
    table = frame()
    ours = module.means_of_cases(table, {"hd95": (0.0, float("inf"))}, seed=3)
    there = table.dropna(subset="hd95").assign(target=0, score=lambda t: t["hd95"])
    metric = {"hd95": Mean(lambda cases: cases.scores, bounds=(0.0, float("inf")))}
    theirs = module.intervals_of_cases(Cases.of(there), metric, seed=3)
    for key in ("pooled", "mean"):
        assert ours[key]["hd95"] == theirs[key]["hd95"]
    for site in ("a", "b"):
        assert ours["clients"][site]["hd95"] == theirs["clients"][site]["hd95"]
    low, high = ours["clients"]["a"]["hd95"][1:3]
    assert 0 < low < 3.5 < high
    assert 3.5 / low == pytest.approx(high / 3.5)


def test_of_shared_cases_each_site_alone_has_intervals(run):
    pytest.importorskip("fedbn_flower.study")
    keys = LOCALLY | {"eval_data": "global"}
    summary = run(data=discs(), **keys, client="fedbn", **KEYS).summary
    assert summary["intervals"]["pooled"] == summary["intervals"]["mean"] == {}
    assert "same cases" in summary["intervals"]["note"]
    assert set(summary["intervals"]["clients"]["0"]) == set(summary["by-case"]["clients"]["0"])
    assert "case-dice" in summary["by-case"]["pooled"]


@pytest.mark.slow
def test_the_summary_and_the_report_have_them_by_site(run, tmp_path):
    pytest.importorskip("fedbn_flower.study")
    sites = write_circles(tmp_path / "sites")
    result = run(dataset=str(sites), **KEYS | {"rounds": 20}, eval_data="local")
    table, found = result.predictions, result.summary["by-case"]
    assert found["unit"] == "pixels"
    for site in ("lyon", "turin"):
        of_site = table[table.site == site]
        assert found["clients"][site]["case-dice"] == pytest.approx(of_site["case-dice"].mean())
        low, high = result.summary["intervals"]["clients"][site]["case-dice"]
        assert low <= found["clients"][site]["case-dice"] <= high
    text = shown(result.folder)
    assert "Segmentation by case" in text
    mean = f"{found['clients']['lyon']['case-dice']:.3f}"
    assert f"lyon {found['cases']['lyon']} {mean} (" in text
    assert "surface Dice at 1 pixel " in text
    assert rf"lyon &amp; {found['cases']['lyon']} &amp; {mean} (" in text  # in LaTeX
    assert text.count("In brackets: 95 % intervals.") == 1  # below their table
    assert "Cases of lyon, by Dice" in text


@pytest.mark.slow
def test_without_predictions_there_is_none_of_it(run):
    """And the bits of the model, and the metrics of rounds, are those of a run that has them."""
    folders = [
        run(data=discs(), **LOCALLY, client="fedbn", **KEYS, predictions=on, run_dir=on).folder
        for on in ("auto", "off")
    ]
    models = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert models[0] == models[1]
    metrics = [pd.read_csv(folder / "metrics.csv").filter(regex="^(?!.*seconds)") for folder in folders]
    pd.testing.assert_frame_equal(*metrics)
    for name in (OVERLAYS_FILE, "predictions.parquet"):
        assert [(folder / name).exists() for folder in folders] == [True, False]
    assert "by-case" not in json.loads((folders[1] / "summary.json").read_text())
    assert ["Segmentation by case" in shown(folder) for folder in folders] == [True, False]


def test_a_tolerance_that_is_none_is_one_line(configured):
    for given in ("-1", "wide"):
        line = f"^surface-tolerance: '{given}' is not allowed; expected a number >= 0, or auto$"
        with pytest.raises(UserError, match=line):
            configured(surface_tolerance=given)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_images_of_other_numbers_are_stretched_each_by_itself(dtype):
    images = np.array([[[[0, 20], [100, 60]]], [[[7, 7], [7, 7]]]], dtype)
    assert in_8_bits(images).tolist() == [[[[0, 51], [255, 153]]], [[[0, 0], [0, 0]]]]
    assert in_8_bits(images.astype(np.uint8))[1].tolist() == [[[7, 7], [7, 7]]]


def test_the_outlines_are_those_of_both_masks():
    """Of each class one of its own, closed at the edge of the image; void has none."""
    masks = np.zeros((2, 8, 8), np.uint8)
    masks[0, 2:4, 2:4], masks[0, 0, 0], masks[0, 7] = 1, 2, 255
    masks[1, 5:7, 5:8] = 1
    figure = overlays(np.zeros((1, 1, 8, 8), np.uint8), masks[:1], masks[1:], ["a $ case"])
    lines = [path.get_paths()[0].vertices for path in figure.axes[0].collections]
    boxes = [(*line.min(0), *line.max(0)) for line in lines]
    assert boxes == [(1.5, 1.5, 3.5, 3.5), (-0.5, -0.5, 0.5, 0.5), (4.5, 4.5, 7.5, 6.5)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["reference", "prediction"]
