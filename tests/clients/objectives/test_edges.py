"""Objectives beside their formulas: what they send, and what has no gradient, no class or no way up."""

import copy

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clients import LOSSES, OBJECTIVES, Examples, Local, Loss
from clients.objectives.features import mean_squared_correlation
from clients.problems import Classification
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError

from .. import written
from ..helpers import CONFIG, make_client, make_examples, small_model

STEPPED = "plain fedprox feddyn scaffold {}feddc fedadmm fedcm fedacg"


@pytest.mark.parametrize(
    ("registry", "flag", "names"),
    [
        (OBJECTIVES, "elementwise", STEPPED.format("scaffold-momentum ")),
        (OBJECTIVES, "example_wise", f"{STEPPED.format('')} moon fedntd fedgkd"),
        (LOSSES, "alike", "auto focal label-smoothing dice dice-ce"),
    ],
)
def test_which_classes_say_this_of_their_own_methods(registry, flag, names):
    assert [name for name, cls in registry.items() if vars(cls).get(flag)] == names.split()


def test_features_that_are_all_zero_have_a_gradient():
    """A ReLU that lets nothing through: the similarity is 0, and nothing is not a number."""
    model = small_model()
    client = make_client("shared", model=model, objective="moon")
    with torch.no_grad():
        model[2].bias.fill_(-100)
    start = client.get_parameters({})
    for server_round in (1, 2):
        sent = client.fit(start, CONFIG | {"server-round": server_round})[0]
        client.memory.commit()
        assert all(np.isfinite(a).all() for a in sent)


@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(1, 9))
def test_it_is_the_mean_of_numpys_squared_correlations_whichever_way_it_is_computed(seed, count, width):
    """More features than examples, or fewer; whatever their units and origins are."""
    rng = np.random.default_rng(seed)
    z = 1e4 * (rng.normal(size=(count, width)) * rng.uniform(0.5, 2, width) + rng.normal(size=width))
    expected = np.mean(np.atleast_2d(np.corrcoef(z, rowvar=False)) ** 2)
    found = mean_squared_correlation(torch.from_numpy(z)).item()
    assert found == pytest.approx(expected, rel=1e-4)
    assert 1 / width - 1e-4 < found < 1 + 1e-9


def test_a_feature_that_is_constant_in_a_batch_has_a_finite_gradient():
    """As one of a ReLU that is never active: it correlates with nothing; torch.corrcoef gives NaN."""
    assert mean_squared_correlation(torch.tensor([[1.0, 5.0], [2.0, 5.0]])).item() == pytest.approx(1 / 4)
    z = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]], requires_grad=True)
    mean_squared_correlation(z).backward()
    assert z.grad.isfinite().all()


def test_one_example_has_no_correlations():
    client = written.make_client("shared", False, "feddecorr")
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG, {})
    inputs, targets = client.task.train.prepared(np.arange(1))
    with_it, output = run.objective.loss(client.task.model, inputs, targets)
    assert with_it.item() == client.task.problem.loss(output, targets).item()


def body(model, inputs):
    """What goes into the last layer, in evaluation mode, layer by layer."""
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        return model[:-1](inputs)


def test_what_is_sent_are_the_trained_models_features_by_class():
    """Made in evaluation mode: nothing of the model that is sent moves by it."""
    client = make_client("shared", objective="fedproto")
    update = client.fit(client.get_parameters({}), CONFIG)
    model = small_model()
    sent = update.arrays.by_name()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in sent.items()})
    inputs, targets = client.task.train.prepared(np.arange(40))
    z = body(model, inputs)
    record = update.records["prototypes"]
    for c in range(3):
        rows = z[targets == c]
        np.testing.assert_allclose(
            record["sums"][c] / record["shares"][c], rows.mean(0), rtol=1e-4, atol=1e-6
        )
        assert record["shares"][c] == pytest.approx(len(rows) / 40)


def test_fedpac_besides_sends_the_received_models_mean_features_and_how_they_vary():
    """By the paper's sum over classes, of means and squares within each."""
    client = make_client("shared", objective="fedpac")
    inputs, targets = client.task.train.prepared(np.arange(40))
    z = body(client.task.model, inputs).double()
    sent = client.fit(client.get_parameters({}), CONFIG).records["features"]
    of_class = [z[targets == c] for c in range(3)]
    means = [len(rows) / 40 * rows.mean(0) for rows in of_class]
    np.testing.assert_allclose(sent["class-means"], torch.stack(means), rtol=1e-4, atol=1e-6)
    squares = sum(len(rows) / 40 * (rows**2).sum(1).mean() for rows in of_class)
    assert sent["spread"] == pytest.approx(float(squares - sum((m**2).sum() for m in means)) / 40, rel=1e-4)


# ---- objectives of logits, and what becomes of classes that a client lacks ----------------------------


def loss_of(name, logits, targets, labels, reduction="mean", **settings):
    """The objective's loss of logits themselves, and the output."""
    examples = Examples({"x": np.zeros(len(labels)), "y": np.array(labels)}, np.arange(len(labels)))
    model = nn.Identity()
    objective = OBJECTIVES[name]({}, settings, local=Local(model, examples, Loss(examples=examples)))
    return objective.loss(model, logits, torch.as_tensor(targets), reduction)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_great_logits_do_not_overflow(dtype):
    """As e^z, summed and divided, does in other code: from 89 on in float32."""
    logits = torch.tensor([[300.0, 0.0, 500.0]], dtype=dtype, requires_grad=True)
    loss, _ = loss_of("fedlc", logits, [1], [0, 1], tau=1.0)
    loss.backward()
    assert loss.item() == pytest.approx(300)
    assert logits.grad[0].tolist() == [1, -1, 0]


@pytest.mark.parametrize("loss", ["label-smoothing", "calc"])
def test_a_loss_that_wants_every_class_is_refused(loss):
    with pytest.raises(UserError, match=f"loss: '{loss}' is not allowed; expected"):
        run_config({"objective": "fedlc", "loss": loss})


def test_of_one_model_nothing_is_remembered():
    client = make_client("shared", RecordDict(), objective="fedgkd")
    client.fit(client.get_parameters({}), CONFIG | {"gkd-models": 1})
    client.memory.commit()
    assert client.memory.read("fedgkd") is None


E = 1e-6


def confusion_by_hand(model, batches, mu, confusion=None, counts=None):
    """Example by example and class by class."""
    confusion = np.zeros((3, 3)) if confusion is None else confusion
    counts = np.zeros(3) if counts is None else counts
    for inputs, targets in batches:
        p = np.exp(model(inputs).detach().double().numpy())
        p /= p.sum(1, keepdims=True)
        batch, seen = np.full((3, 3), E), np.zeros(3)
        for row, y in zip(p, targets, strict=True):
            batch[y] += row
            seen[y] += 1
        confusion, counts = mu * confusion + (1 - mu) * batch, mu * counts + (1 - mu) * seen
    return confusion, counts


def test_the_scores_are_the_share_of_wrong_predictions_over_two_rounds():
    """At a rate of 0 the model stays but for its statistics, which the passes in training mode do not use."""
    client = make_client("shared", objective="fedsat")
    config = CONFIG | {"client-lr": 0.0, "confusion-mu": 0.8}
    model = copy.deepcopy(client.task.model).train()
    confusion = counts = None
    for server_round in (1, 2):
        update = client.fit(client.get_parameters({}), config | {"server-round": server_round})
        client.memory.commit()
        rng = np.random.default_rng([0, 0, server_round])
        rng.integers(2**63)
        batches = client.task.train.load(list(client.task.train.batches(8, rng)))
        confusion, counts = confusion_by_hand(model, batches, 0.8, confusion, counts)
        expected = [(confusion[i].sum() - confusion[i, i]) / (counts[i] + E) for i in range(3)]
        np.testing.assert_allclose(update.records["struggle"]["scores"], expected, rtol=1e-4)


def test_a_class_that_a_client_lacks_is_a_whole_struggle():
    client = make_client("shared", objective="fedsat")
    client.task.train.columns["y"][:] = 1
    client.task.train.columns["y"][0] = 2  # once: a count of 0.05 at most
    scores = client.fit(client.get_parameters({}), CONFIG).records["struggle"]["scores"]
    assert scores[0] == 1
    assert ((scores[1:] > 0) & (scores[1:] < 1)).all()


def margins_by_hand(confusion):
    n = len(confusion)
    both = [[(confusion[i, j] + confusion[j, i]) / 2 for j in range(n)] for i in range(n)]
    rows = np.array([[0 if i == j else both[i][j] / sum(both[i]) for j in range(n)] for i in range(n)])
    return rows / rows.max()


@pytest.mark.parametrize("seed", range(3))
def test_calc_is_its_formula_example_by_example(seed):
    rng = np.random.default_rng(seed)
    examples = make_examples(seed=seed)
    y = examples.columns["y"]
    logits = torch.from_numpy(rng.normal(size=(40, 3))).requires_grad_()
    confusion = rng.random((3, 3))
    loss = LOSSES["calc"](Classification(), examples)
    loss.confusion = torch.from_numpy(confusion)
    found = loss(logits, torch.from_numpy(y))
    q = np.array([(y == c).mean() for c in range(3)])
    d = margins_by_hand(confusion)
    softmax = np.exp(confusion) / np.exp(confusion).sum(1, keepdims=True)
    m = margins_by_hand(softmax)

    def written(values):
        total = 0.0
        for row, label in zip(values, y, strict=True):
            z = row - 0.1 * q**-0.25
            contrast = -z[label] + np.log(np.exp(z + d[label]).sum())
            usual = z - 0.5 * m[label]
            total += 0.95 * contrast + 0.05 * (-usual[label] + np.log(np.exp(usual).sum()))
        return total / len(y)

    values = logits.detach().numpy()
    assert found.item() == pytest.approx(written(values), rel=1e-9)
    found.backward()
    for i, j in ((0, 0), (7, 2), (39, 1)):
        step = np.zeros_like(values)
        step[i, j] = 1e-6
        numeric = (written(values + step) - written(values - step)) / 2e-6
        assert logits.grad[i, j].item() == pytest.approx(numeric, abs=1e-7)


def test_calc_without_a_confusion_has_no_margins():
    examples = make_examples()
    targets = torch.from_numpy(examples.columns["y"])
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 3)))
    q = torch.bincount(targets).double() / 40
    expected = torch.nn.functional.cross_entropy(logits - 0.1 * q**-0.25, targets)
    found = LOSSES["calc"](Classification(), examples)(logits, targets)
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)


# ---- objectives that step uphill first ----------------------------------------------------------------


class Squares(Loss):
    """||w||^2 / 2 of the output itself."""

    def __call__(self, output, targets, reduction="mean"):
        return (output**2).sum() / 2


class Constant(nn.Module):
    def __init__(self, *values):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(values))

    def forward(self, x):
        return self.w


def sam_of(model, loss=None, rho=0.5):
    examples = make_examples()
    return OBJECTIVES["fedsam"](
        dict(model.named_parameters()), {"rho": rho}, local=Local(model, examples, loss or Loss())
    )


def test_without_a_gradient_there_is_no_way_up():
    model = Constant(0.0, 0.0)
    objective = sam_of(model, Squares())
    objective.loss(model, torch.zeros(2), torch.zeros(2))[0].backward()
    objective.correct_gradients()
    assert model.w.tolist() == model.w.grad.tolist() == [0.0, 0.0]


def shared_batch_norm():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), norm, nn.Tanh(), norm, nn.Linear(5, 3))


@pytest.mark.parametrize(("make", "passes"), [(small_model, 1), (shared_batch_norm, 2)])
def test_batch_norm_statistics_move_once_a_step(make, passes):
    """Five steps in a round: as often as under plain SGD, where a layer is used twice, too."""
    counted = []
    for objective in ("plain", "fedsam"):
        client = make_client("shared", model=make(), objective=objective)
        sent = client.fit(client.get_parameters({}), CONFIG)[0]
        counted.append(sent.by_name()["2.num_batches_tracked"])
    assert counted == [5 * passes] * 2


def test_what_is_evaluated_after_training_is_x_i_and_not_what_is_sent():
    client = make_client("shared", objective="fedspeed")
    update = client.fit(client.get_parameters({}), CONFIG | {"eval-splits": "test"})
    sent = update.arrays.by_name()
    assert not np.allclose(client.task.model.state_dict()["4.weight"].numpy(), sent["4.weight"])
    x, y = client.task.evaluation["test"].prepared(np.arange(30))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(client.task.model.eval()(x), y).item()
    assert update.metrics["loss"] == pytest.approx(loss, rel=1e-5)
