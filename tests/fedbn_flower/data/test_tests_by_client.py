"""Each model is evaluated on its own site's cases, and the run says so, and why."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

from fedbn_flower.data.readers.arrays import keep_arrays
from fedbn_flower.data.readers.torch_datasets import pooled
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.what_is_learnt import what_is_learnt
from fedbn_flower.records.summary import TESTED_ON, Summary
from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.report import write_report
from fedbn_flower.runtime.simulation import compared_alike

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


def test_where_results_stand_it_is_said_of_whose_cases_they_are(run, configured):
    for eval_data, words in TESTED_ON.items():
        result = run(client="fedbn", rounds=1, eval_data=eval_data)
        assert result.summary["eval-data"] == eval_data
        assert summary_table(configured(), Summary.model_validate(result.summary)).caption == words
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
