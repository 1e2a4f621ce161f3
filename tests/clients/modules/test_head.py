"""Where the head begins, what goes into it, and passes that move nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from clients.modules.clipping import before_head, clip_adaptively
from clients.modules.head import features, frozen, head_entries, head_of

from ..helpers import small_model
from .test_parameter_names import tied_model


class Tied(nn.Module):
    """The head's weight is the embedding's; a dropout, and an LSTM between them."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.lstm = nn.LSTM(4, 4, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.decode = nn.Linear(4, 5)
        self.decode.weight = self.embed.weight

    def forward(self, x):
        return self.decode(self.dropout(self.lstm(self.embed(x))[0][:, -1]))


class Says(nn.Module):
    """Its head is two layers, which are not the last ones it has."""

    head = "classify"

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.classify = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
        self.aside = nn.Linear(1, 1)

    def forward(self, x):
        return self.classify(input=self.body(x))


def normed():
    return nn.Sequential(nn.Linear(4, 3), nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))


def around():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Linear(4, 4), layer)


@pytest.mark.parametrize(
    ("make", "name", "entries"),
    [
        (small_model, "4", {"4.weight", "4.bias"}),
        (Tied, "decode", {"decode.weight", "embed.weight", "decode.bias"}),
        (tied_model, "5", {"5.weight", "5.bias"}),
        (around, "2", {"0.weight", "0.bias", "2.weight", "2.bias"}),
        (lambda: nn.Linear(2, 1), "", {"weight", "bias"}),
        (
            Says,
            "classify",
            {f"classify.0.{n}" for n in ("weight", "bias", "running_mean", "running_var")}
            | {"classify.0.num_batches_tracked", "classify.1.weight", "classify.1.bias"},
        ),
        (normed, "1", {f"1.{n}" for n in ("bias", "parametrizations.weight.original0")}
         | {"1.parametrizations.weight.original1"}),
    ],
)  # fmt: skip
def test_the_head_is_what_the_model_says_or_the_last_layer_with_parameters(make, name, entries):
    model = make()
    assert head_of(model) == (name, model.get_submodule(name))
    assert head_entries(model) == entries
    assert entries <= set(model.state_dict())


@pytest.mark.parametrize("said", ["", "classifier"])
def test_a_head_that_is_not_there_is_reported(said):
    model = small_model()
    model.head = said
    with pytest.raises(
        ValueError, match=f"Sequential.head is '{said}', which is not the name of a submodule"
    ):
        head_of(model)


def test_what_has_no_parameters_has_no_head():
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        head_of(nn.ReLU())


def test_features_are_what_goes_into_the_head_and_the_hook_is_gone():
    model = Says()
    x = torch.rand(6, 4)
    z, output = features(model, x)
    torch.testing.assert_close(z, x @ model.body.weight.T + model.body.bias)
    assert z.requires_grad
    assert output.shape == (6, 2)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        features(model, torch.rand(6, 5))
    assert not model.classify._forward_pre_hooks


def test_of_several_calls_the_last_one_counts_and_rows_are_flattened():
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.Tanh(), layer)
    x = torch.rand(3, 4, 2)
    torch.testing.assert_close(features(model, x)[0], layer(x).tanh().reshape(3, 8))


def test_a_head_that_is_never_called_is_reported():
    class Passed(Says):
        head = "aside"

    with pytest.raises(ValueError, match="Passed does not call its head 'aside'"):
        features(Passed(), torch.rand(2, 4))


def state(model):
    entries = {name: entry.clone() for name, entry in model.state_dict().items()}
    return entries, [m.training for m in model.modules()], torch.get_rng_state()


MODELS = [
    (small_model, lambda: torch.rand(6, 1, 2, 2)),
    (tied_model, lambda: torch.rand(6, 1, 2, 2)),
    (Tied, lambda: torch.randint(5, (6, 3))),
    (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 2)), lambda: torch.rand(6, 4)),
]


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(("make", "inputs"), MODELS)
def test_a_frozen_pass_is_the_other_models_and_moves_nothing(make, inputs, train):
    torch.manual_seed(3)
    x, model, other = inputs(), make(), make()
    with torch.no_grad():
        for entry in other.state_dict().values():
            if entry.is_floating_point():
                entry.add_(torch.rand(()))
    model.train()
    next(model.children()).eval()  # a model need not be in one mode
    given = {name: entry.clone() for name, entry in other.state_dict().items()}
    kept = {name: entry.clone() for name, entry in given.items()}
    before = state(model)
    z, output = frozen(model, given, x, train)
    after = state(model)
    assert after[1] == before[1]
    for name, entry in (*before[0].items(), ("generator", before[2])):
        assert torch.equal({**after[0], "generator": after[2]}[name], entry), name
    assert all(torch.equal(entry, kept[name]) for name, entry in given.items())
    assert not z.requires_grad
    assert not output.requires_grad

    other.train(train)
    torch.manual_seed(0)
    expected_z, expected = features(other, x)
    torch.testing.assert_close((z, output), (expected_z, expected))
    torch.testing.assert_close(model.eval()(x), frozen(model, None, x)[1])


# ---- clipping before it -------------------------------------------------------------------------------


def with_gradient(values, gradient):
    p = nn.Parameter(torch.tensor(values))
    p.grad = torch.tensor(gradient)
    return p


def test_each_output_by_itself():
    """Rows of norm 5, 0.0001 (so 0.001) and 10, at 0.1: gradients of norm 0.5, 0.0001 and 1 at most."""
    p = with_gradient([[3.0, 4.0], [1e-4, 0.0], [6.0, 8.0]], [[3.0, 4.0], [0.0, 2.0], [0.6, 0.0]])
    clip_adaptively([p], 0.1)
    np.testing.assert_allclose(p.grad.numpy(), [[0.3, 0.4], [0.0, 1e-4], [0.6, 0.0]], rtol=1e-6)


def test_a_vector_is_one_unit_and_none_is_skipped():
    vector, without = with_gradient([3.0, 4.0], [0.0, 10.0]), nn.Parameter(torch.ones(2))
    clip_adaptively([without, vector], 0.2)
    np.testing.assert_allclose(vector.grad.numpy(), [0.0, 1.0], rtol=1e-6)


def test_zero_gradients_stay_zero():
    p = with_gradient([[0.0, 0.0]], [[0.0, 0.0]])
    clip_adaptively([p], 0.1)
    assert p.grad.tolist() == [[0, 0]]


@pytest.mark.parametrize("shape", [(4,), (3, 2), (2, 3, 3, 3)])
def test_as_timm_does(shape):
    agc = pytest.importorskip("timm.utils.agc", reason="needs timm, of the extra networks")
    p, other = (
        nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0))) for _ in range(2)
    )
    p.grad, other.grad = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    clip_adaptively([nn.Parameter(torch.ones(2)), p], 0.05)
    agc.adaptive_clip_grad([other], 0.05)
    torch.testing.assert_close(p.grad, other.grad)


def test_the_head_is_not_clipped():
    model = small_model()
    named = {id(p): name for name, p in model.named_parameters()}
    assert [named[id(p)] for p in before_head(model)] == ["1.weight", "1.bias", "2.weight", "2.bias"]
    model[1].requires_grad_(False)
    assert [named[id(p)] for p in before_head(model)] == ["2.weight", "2.bias"]
