"""Each model is evaluated on its own site's cases, and the run says so, and why."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from torch.utils.data import TensorDataset

from fedbn_flower.core.errors import UserError
from fedbn_flower.data.readers.arrays import keep_arrays
from fedbn_flower.job.checks.notices import notices
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.what_is_learnt import what_is_learnt
from fedbn_flower.own_data.torch_datasets import pooled
from fedbn_flower.records.summary import TESTED_ON, Summary
from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.report import write_report
from fedbn_flower.runtime.simulation import compared_alike
from fedbn_flower.server.federation import Federation

RNG = np.random.default_rng(0)
SIZES = {"a": 60, "b": 30, "c": 15}
OWN = (
    "examples: each client is evaluated on its own test examples, since clients are sites "
    "(guessed; eval-data decides)"
)
ALL = "examples: each client is evaluated on all test examples"


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


def test_clients_are_evaluated_on_their_own_tests(run):
    """By hand, with the final model. All examples together would give the larger clients more weight."""
    data, test = (
        {name: TensorDataset(*map(torch.tensor, pair)) for name, pair in given.items()}
        for given in (TRAIN, TEST)
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


def said_of(inputs):
    """Whether clients are evaluated locally, and what is said of it."""
    lines = [str(note) for note in what_is_learnt(inputs)]
    return inputs.evaluates_locally, [line for line in lines if "is evaluated on" in line]


ONE_MODEL = ", since all have one model, and the data name no sites (guessed; eval-data decides)"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"partition": "iid"}, (False, [ALL + ONE_MODEL])),
        ({"eval_data": "global"}, (False, [ALL])),
        ({"eval_data": "local"}, (True, [OWN.partition(",")[0]])),
    ],
)
def test_what_is_divided_in_another_way_is_everybodys_and_a_stated_wish_decides(
    configured, cache_dir, keys, expected
):
    name = keep_arrays(cache_dir, *pooled(TRAIN, TEST))
    given = {"dataset": name, "partition": "natural:client", "num_clients": 3} | KEYS | keys
    assert said_of(inputs_of(configured(**given))) == expected


def keeps(client, what="a part of the model"):
    return {"client": client}, f"client {client!r} keeps {what} at home"


OF_THEIR_OWN = (
    keeps("fedbn"), keeps("silobn"), keeps("fedper"), keeps("ditto"), keeps("alone"), keeps("fedbn+fedper"),
    ({"strategy": "fedamp", "objective": "fedprox"}, "strategy 'fedamp' keeps several models"),
    ({"fine_tune": 1}, "each first trains or adapts the model"),
    ({"adapt_bn": True}, "each first trains or adapts the model"),
    ({"eval_model": "local"}, "each evaluates the model that it has trained"),
)  # fmt: skip


@pytest.mark.parametrize(("keys", "why"), OF_THEIR_OWN)
def test_a_model_of_ones_own_is_evaluated_on_ones_own_examples(configured, keys, why):
    """The digits, 0 to 4 at one client, 5 to 9 at the other."""
    inputs = inputs_of(configured(**{"client": "fedavg", "strategy": "fedavg"} | keys))
    assert inputs.tested_on == (True, why)
    assert inputs.partitions.test.sizes.sum() == len(inputs.dataset.test)


def test_of_runs_that_are_compared_all_are_evaluated_alike(configured, tmp_path):
    """FedAvg alone is evaluated on all digits; beside FedBN, which is not, on each client's."""
    both = [configured(client=name) for name in ("fedavg", "fedbn")]
    assert [inputs_of(config).evaluates_locally for config in both] == [False, True]
    assert all(inputs_of(config).evaluates_locally for config in compared_alike(both))
    told = [configured(client=name, eval_data="global") for name in ("fedavg", "fedbn")]
    assert compared_alike(told) == told
    assert compared_alike(both[:1]) == both[:1]


@pytest.mark.slow
def test_where_results_stand_it_is_said_of_whose_cases_they_are(run, configured):
    result = run(client="fedbn", rounds=1, eval_data="global")
    assert result.summary["eval-data"] == "global"
    for eval_data, words in TESTED_ON.items():
        summary = result.summary | {"eval-data": eval_data}
        assert summary_table(configured(), Summary.model_validate(summary)).caption == words
        (result.folder / "summary.json").write_text(json.dumps(summary))
        assert f"{words[0].upper()}{words[1:]}." in write_report(result.folder).read_text()


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


@pytest.mark.parametrize(("normalize", "untested"), [(False, ""), (True, ""), (True, "b")])
def test_tables_with_a_test_file_are_evaluated_by_client(configured, tables, normalize, untested):
    """Also where one client has no tests."""
    test = pd.read_csv(tables / "test.csv")
    test[test.site != untested].to_csv(tables / "test.csv", index=False)
    keys = {"dataset": str(tables), "partition": "natural:site", "num_clients": 3, "normalize": normalize}
    assert said_of(inputs_of(configured(**KEYS | keys))) == (True, [OWN])


def test_what_global_means_is_said(configured, tables):
    keys = {"dataset": str(tables), "partition": "natural:site", "num_clients": 3, "eval_data": "global"}
    (line,) = (line for line in notices(inputs_of(configured(**KEYS | keys))) if line.startswith("eval-data"))
    assert line.startswith("eval-data: 'global': each client's model is evaluated on all clients' examples")


@pytest.fixture
def four_sites(tmp_path):
    """Four sites, of which 'ost' has no test rows."""
    rng = np.random.default_rng(0)
    for split, count in {"train": 40, "test": 20}.items():
        (tmp_path / "sites" / split).mkdir(parents=True)
        for site in ("nord", "ost", "sued", "west"):
            rows = pd.DataFrame({"x": rng.normal(size=count)})
            if (split, site) != ("test", "ost"):
                path = tmp_path / "sites" / split / f"{site}.csv"
                rows.assign(label=(rows.x > 0).astype(int)).to_csv(path, index=False)
    return {"dataset": str(tmp_path / "sites")}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("eval_data", "more"),
    [
        ("local", {}),
        ("auto", {"best": "cross-fitted"}),
        ("auto", {"val_fraction": 0.25, "predictions": "on"}),
    ],
)
def test_a_site_without_test_rows_trains_and_enters_no_mean(run, four_sites, eval_data, more):
    keys = {**four_sites, **more, "partition": "natural:file", "num_clients": 4, "model": "auto", "rounds": 1}
    result = run(**keys, eval_data=eval_data)
    found = result.summary["clients"]
    assert json.loads((result.folder / "config.json").read_text())["eval-data"] == "local"
    assert sorted(found) == ["0", "2", "3"]
    losses = [one["loss"] for one in found.values()]
    assert result.summary["client-mean"]["loss"] == pytest.approx(np.mean(losses), rel=1e-12)
    if not more:  # it trains as where all are evaluated on all test rows
        other = run(**keys, eval_data="global")
        one, same = (load_file(folder / "model.safetensors") for folder in (result.folder, other.folder))
        assert all(np.array_equal(one[name], same[name]) for name in one)


def test_a_site_without_test_rows_is_named_before_the_first_round(configured, four_sites):
    config = configured(**four_sites, partition="natural:file", num_clients=4)
    said = "clients that train and are not evaluated, without held-out examples: ost"
    assert said in str(Federation(config).learnt)


def test_where_each_evaluates_what_it_has_just_trained_all_are_evaluated_on_all(configured, four_sites):
    config = configured(**four_sites, partition="natural:file", num_clients=4, eval_model="local")
    assert not inputs_of(config).evaluates_locally
    with pytest.raises(
        UserError, match="^eval-data: 'local' is not allowed; expected 'global', since 1 clients"
    ):
        Federation(config.model_copy(update={"eval_data": "local"}))
