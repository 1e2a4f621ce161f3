"""Models that take whole numbers, such as tokens, and the data that they get."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.input_spec import InputSpec
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.models.integers import fitted
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import local_task

from ..data.test_own_data import Sites
from ..refusal import one_line

WORDS, LENGTH = 40, 12
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, WORDS, (600, LENGTH))
GOOD = (np.where(np.arange(WORDS) % 2, 1, -1)[TOKENS].sum(1) > 0).astype(int)
"""More odd words than even ones."""
DATA = (TOKENS[:500], GOOD[:500], TOKENS[500:], GOOD[500:])


class Mean(nn.Module):
    """The mean of the words' embeddings, and a linear layer."""

    def __init__(self, spec):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, spec.outputs)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).mean(1))


class Converts(Mean):
    """It takes either: floats it converts."""

    def forward(self, tokens):
        return super().forward(tokens.long())


class Declares(Converts):
    integer_inputs = True


class Refuses(Mean):
    integer_inputs = False


def bag(spec):
    return nn.Sequential(nn.EmbeddingBag(WORDS, 8), nn.Linear(8, spec.outputs))


def linear(spec):
    return nn.Linear(LENGTH, spec.outputs)


@pytest.mark.parametrize(
    ("make", "spec", "integers"),
    [
        (Mean, InputSpec((LENGTH,), 2), True),
        (bag, InputSpec((LENGTH,), 2), True),
        (Converts, InputSpec((LENGTH,), 2), False),
        (Declares, InputSpec((LENGTH,), 2), True),
        (Refuses, InputSpec((LENGTH,), 2), False),
        (linear, InputSpec((LENGTH,), 2), False),
        (linear, InputSpec((LENGTH + 1,), 2), False),  # fits neither
        (Mean, InputSpec((1, 8, 8), 2), False),  # an image
        (Declares, InputSpec((1, 8, 8), 2), True),
        (Mean, InputSpec((LENGTH,), 2, "characters"), False),  # int64 anyway
    ],
)
def test_what_a_model_takes(make, spec, integers):
    model = make(spec)
    model.train()
    state = torch.get_rng_state()
    assert fitted(model, spec).integers == integers
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("x", "keys", "words"),
    [
        (TOKENS + 0.5, {}, "it takes whole numbers, and the inputs hold "),
        (TOKENS + WORDS, {}, f"expected one that takes {2 * WORDS - 1}, the greatest of the inputs ("),
        (TOKENS - 1, {}, "expected one that takes -1, the least of the inputs ("),
        (TOKENS + 2**24 + 1, {}, "and float32 lacks whole numbers above 16777216"),
        (TOKENS, {"normalize": True}, "normalize: True is not allowed; expected false: model "),
        (TOKENS[:, :0], {}, "expected uint8 images"),
    ],
)
def test_other_inputs_are_refused_in_a_line(run, x, keys, words):
    with one_line(words):
        run(data=(x, GOOD, x, GOOD), model=Mean, partition="iid", **keys)


def test_images_are_no_tokens(run):
    with pytest.raises(UserError, match=r"it takes whole numbers, and the data are images, 1x8x8 in 10"):
        run(model=Declares)


def narrow(spec):
    return nn.Sequential(nn.EmbeddingBag(WORDS, 8), nn.Linear(9, spec.outputs))


def test_a_model_that_takes_neither_is_refused_for_what_is_wrong_with_it(run):
    """Not because its embedding gets floats."""
    with pytest.raises(UserError, match=r"does not fit inputs of 12 in 2 classes: mat1 and mat2 shapes"):
        run(data=DATA, model=narrow, partition="iid")


# ---- tables, and sites ----------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    names = [f"w{i}" for i in range(LENGTH)]
    for split, rows in (("train", slice(0, 90)), ("test", slice(90, 120))):
        table = pd.DataFrame(TOKENS[rows], columns=names)
        table["label"], table["site"] = GOOD[rows], np.repeat(["a", "b"], len(table) // 2)
        (tmp_path / "all").mkdir(exist_ok=True)
        table.to_csv(tmp_path / "all" / f"{split}.csv", index=False)
    return tmp_path, ",".join(names)


MODEL = "tests.fedbn_flower.models.test_integers:bag"


def test_columns_of_whole_numbers_are_not_standardised(configured, tables):
    folder, columns = tables
    config = configured(
        dataset=str(folder / "all"), columns=columns, partition="natural:site", client="shared", model=MODEL
    )
    x, _ = local_task(config, 1, {}).train.prepared(np.arange(45))
    assert x.dtype == torch.int64
    np.testing.assert_array_equal(sorted(x.tolist()), sorted(TOKENS[45:90].tolist()))


@pytest.mark.slow
def test_a_server_without_data_takes_tokens_as_its_sites_do(configured, tables):
    """The model has the bits of a simulation that sees both tables."""
    folder, columns = tables
    keys = {"columns": columns, "client": "shared", "model": MODEL}
    simulated = configured(dataset=str(folder / "all"), partition="natural:site", **keys)
    expected = Federation(simulated).run(InlineGrid(2, simulated.to_user_config()), [])
    for split in ("train", "test"):
        whole, shares = pd.read_csv(folder / "all" / f"{split}.csv"), inputs_of(simulated).partitions
        for i, site in enumerate("ab"):
            (folder / site).mkdir(exist_ok=True)
            whole.iloc[getattr(shares, split)[i]].to_csv(folder / site / f"{split}.csv", index=False)
    config = configured(dataset=f"shape:{LENGTH}:2", **keys)
    nodes = [
        {"data-path": str(folder / site), "partition-id": i, "cache-dir": str(folder / "cache")}
        for i, site in enumerate("ab")
    ]
    got = Federation(config).run(Sites(config, nodes), [])
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name].numpy(), array.numpy())


def test_what_a_model_gets_is_said(configured, tables):
    folder, columns = tables
    config = configured(dataset=str(folder / "all"), columns=columns, client="shared", model=MODEL)
    assert f"inputs: whole numbers, int64, as model {config.model!r} takes them" in map(
        str, inputs_of(config).notes
    )
