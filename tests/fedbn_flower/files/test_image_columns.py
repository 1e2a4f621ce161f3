"""Numbers and several labels of images, from the columns of a table beside them."""

import json

import datasets
import numpy as np
import pytest
import torch

from fedbn_flower import UserError
from fedbn_flower.config.making import run_config
from fedbn_flower.job.inputs import inputs_of

from .test_folders import grey, write


def test_a_table_beside_the_pictures_has_numbers_or_several_labels(cache_dir, tmp_path, configured):
    """Fractions are numbers; several columns are numbers, or labels, by their names."""
    rows = [f"{i}.png,{i / 4},{i % 2},{i // 5}" for i in range(10)]
    folder_with(tmp_path / "xrays", rows)
    ages = configured(dataset=str(tmp_path / "xrays"), label_column="age", partition="iid")
    found = inputs_of(ages).dataset
    assert (found.spec.predicts, found.spec.outputs, found.problem.metrics) == ("numbers", 1, ("loss", "mae"))
    assert sorted(np.concatenate([found.train.columns["y"], found.test.columns["y"]]).ravel()) == [
        i / 4 for i in range(10)
    ]
    keys = {"label_column": "Edema,Mass", "problem": "multi-label", "metrics": "f1", "metrics_by_class": True}
    findings = inputs_of(configured(dataset=str(tmp_path / "xrays"), partition="iid", **keys)).dataset
    assert findings.problem.metrics == ("loss", "accuracy", "f1", "f1-Edema", "f1-Mass")
    assert findings.train.columns["y"].sum(0).tolist() == [4, 3]  # held out are (0, 1) and (1, 1)
    keys = {"label_column": "Mass", "problem": "regression", "partition": "iid"}
    assert inputs_of(configured(dataset=str(tmp_path / "xrays"), **keys)).dataset.spec.predicts == "numbers"
    for column, message in (
        ("Edema,Nodule", "unknown name 'Nodule'"),
        ("Edema,file", "'file' does not hold"),
    ):
        wrong = configured(dataset=str(tmp_path / "xrays"), label_column=column, partition="iid")
        with pytest.raises(UserError, match=f"label-column: {message}"):
            inputs_of(wrong).dataset


def test_lists_of_findings_are_several_labels(cache_dir, tmp_path, configured):
    """As public collections of X-rays have them; a picture may have none."""
    findings = [[], [0], [2, 0], [1], [], [2]]
    classes = datasets.Sequence(datasets.ClassLabel(names=["Edema", "Mass", "Nodule"]))
    features = datasets.Features({"image": datasets.Image(), "labels": classes})
    columns = {"image": [grey(20 * i) for i in range(6)], "labels": findings}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "saved")
    keys = {"problem": "multi-label", "metrics": "auroc", "metrics_by_class": True, "partition": "iid"}
    found = inputs_of(configured(dataset=str(tmp_path / "saved"), **keys)).dataset
    y = np.concatenate([found.train.columns["y"], found.test.columns["y"]])
    assert sorted(map(tuple, y.tolist())) == [
        (0, 0, 0),
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
        (1, 0, 0),
        (1, 0, 1),
    ]
    assert found.problem.metrics[3:] == ("auroc-Edema", "auroc-Mass", "auroc-Nodule")


def test_numbers_are_learnt_from_images(run, tmp_path):
    """By the default model, with the error of each number; without a test split, two are held out."""
    folder_with(tmp_path / "xrays", [f"{i}.png,{i / 4},{i % 2},{i // 5}" for i in range(10)])
    keys = {"dataset": tmp_path / "xrays", "label_column": "age,Mass", "partition": "iid", "client": "shared"}
    result = run(**keys, metrics="rmse", metrics_by_class=True, eval_data="global")
    config = json.loads((result.folder / "config.json").read_text())
    of_data = {key: config[key] for key in ("dataset", "label-column", "cache-dir", "partition")}
    test = inputs_of(run_config(of_data)).dataset.test.columns
    with torch.no_grad():
        errors = result.model()(torch.from_numpy(test["x"] / np.float32(255))).numpy() - test["y"]
    found = [result.summary["global"][f"rmse-{name}"] for name in ("age", "Mass")]
    assert found == pytest.approx(np.sqrt((errors**2).mean(0)).tolist(), rel=1e-5)


def folder_with(folder, rows):
    """Pictures with numbers, and a table beside them."""
    write(folder, {f"{i}.png": grey(20 * i) for i in range(10)})
    lines = ["file_name,age,Edema,Mass,file", *(f"{row},scan{i}" for i, row in enumerate(rows))]
    (folder / "metadata.csv").write_text("\n".join(lines))
