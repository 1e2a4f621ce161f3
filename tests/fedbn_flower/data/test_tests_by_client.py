"""A test set that is given by client is evaluated by client, and the run says so."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from fedbn_flower.data import Request, load_dataset
from fedbn_flower.federation.inputs import inputs_of
from fedbn_flower.results.run_reader import Run

RNG = np.random.default_rng(0)
SIZES = {"a": 60, "b": 30, "c": 15}
OWN = "examples: each client is evaluated on its own test examples (guessed; eval-data decides)"


def part(name, count):
    """Two classes; the further a client's name is in the alphabet, the more labels are wrong."""
    x = RNG.normal(size=(count, 3))
    wrong = RNG.random(count) < 0.1 * "abc".index(name)
    return x, ((x[:, 0] > 0) ^ wrong).astype(int)


TRAIN = {name: part(name, 4 * count) for name, count in SIZES.items()}
TEST = {name: part(name, count) for name, count in SIZES.items()}
KEYS = {"client": "shared", "strategy": "fedavg", "model": "linear", "client_lr": 0.3, "batch_size": 16}


def accuracy(model, x, y):
    return float((model(torch.tensor(x, dtype=torch.float32)).argmax(1).numpy() == y).mean())


@pytest.mark.parametrize("as_datasets", [False, True])
def test_clients_are_evaluated_on_their_own_tests(run, as_datasets):
    """By hand, with the final model. All examples together would give the larger clients more weight."""
    data, test = TRAIN, TEST
    if as_datasets:
        data, test = (
            {name: TensorDataset(*map(torch.tensor, pair)) for name, pair in given.items()}
            for given in (data, test)
        )
    result = run(data=data, test=test, **KEYS)
    own = {name: accuracy(result.model(), *pair) for name, pair in TEST.items()}
    assert result.summary["client-mean"]["accuracy"] == pytest.approx(np.mean(list(own.values())))
    x, y = (np.concatenate(arrays) for arrays in zip(*TEST.values(), strict=True))
    of_all = accuracy(result.model(), x, y)
    assert result.summary["global"]["accuracy"] == pytest.approx(of_all)
    assert of_all != pytest.approx(np.mean(list(own.values())), abs=0.01)
    pooled = run(data=data, test=test, eval_data="global", **KEYS)
    assert pooled.summary["client-mean"]["accuracy"] == pytest.approx(of_all)


@pytest.fixture
def said(run):
    """Whether clients are evaluated locally, and what is said of it."""

    def of(**keys):
        result = run(**KEYS | {"rounds": 1} | keys)
        lines = list(map(str, Run.read(result.folder).learnt))
        manifest = json.loads((result.folder / "config.json").read_text())
        return manifest["eval-data"], [line for line in lines if "is evaluated on" in line]

    return of


def test_one_test_set_for_all_is_everybodys(said):
    assert said(data=TRAIN, test=TEST["a"]) == ("global", [])


def test_a_held_out_fifth_is_everybodys(said):
    assert said(data=TRAIN) == ("global", [])


def test_what_is_divided_in_another_way_is_everybodys(said):
    assert said(data=TRAIN, test=TEST, partition="iid") == ("global", [])


def test_own_tests_are_said(said):
    assert said(data=TRAIN, test=TEST) == ("local", [OWN])


def test_a_stated_wish_decides(said):
    assert said(data=TRAIN, test=TEST, eval_data="global") == ("global", [])
    assert said(data=TRAIN, test=TEST, eval_data="local") == ("local", [])


# ---- files -----------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    for split, parts in (("train", TRAIN), ("test", TEST)):
        frames = [
            pd.DataFrame({"site": name, "u": x[:, 0], "v": x[:, 1], "label": y})
            for name, (x, y) in parts.items()
        ]
        pd.concat(frames).to_csv(tmp_path / f"{split}.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("normalize", [False, True])
def test_tables_with_a_test_file_are_evaluated_by_client(said, tables, normalize):
    keys = {"dataset": str(tables), "partition": "natural:site", "num_clients": 3, "normalize": normalize}
    assert said(**keys) == ("local", [OWN])


def test_clients_without_tests_are_evaluated_on_all_and_that_is_said(said, tables):
    test = pd.read_csv(tables / "test.csv")
    test[test.site != "b"].to_csv(tables / "test.csv", index=False)
    keys = {"dataset": str(tables), "partition": "natural:site", "num_clients": 3, "normalize": True}
    assert said(**keys) == (
        "global",
        [
            "examples: each client is evaluated on all test examples, since 1 of 3 clients (the first is b) "
            "have none of their own (guessed; eval-data decides)"
        ],
    )


def test_a_table_without_a_test_file_has_none_by_client(cache_dir, tables):
    found = load_dataset(Request(str(tables / "train.csv"), group_column="site"), cache_dir)
    assert not found.tests_by_client


@pytest.mark.parametrize("masks", [False, True])
def test_folders_of_sites_with_their_own_tests_are_evaluated_by_site(configured, tmp_path, masks):
    for split in ("train", "test"):
        for site in ("x", "y"):
            for i in range(4):
                pixels = RNG.integers(0, 256, (8, 8)).astype(np.uint8)
                if masks:
                    places = {"images": pixels, "masks": (pixels > 99).astype(np.uint8)}
                    places = {tmp_path / split / site / name: image for name, image in places.items()}
                else:
                    places = {tmp_path / split / site / "uv"[i % 2]: pixels}
                for folder, image in places.items():
                    folder.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(image).save(folder / f"{i}.png")
    config = configured(dataset=str(tmp_path), partition="natural:folder", client="shared", model="auto")
    inputs = inputs_of(config)
    assert inputs.dataset.tests_by_client
    assert inputs.evaluates_locally
    assert [len(rows) for rows in inputs.partitions.test] == [4, 4]
