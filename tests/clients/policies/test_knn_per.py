"""kNN-Per against scikit-learn's neighbours, and what it leaves as it is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from clients import Classification, FedAvgClient, KNNPerClient, Regression

from ..helpers import CONFIG, make_client, small_model
from .by_hand import PULLED


def made(name="knn-per", **settings):
    model = small_model()
    model[3] = nn.Tanh()  # a ReLU gives several examples the same features
    client = make_client(name, RecordDict(), model=model)
    for key, value in settings.items():
        setattr(client, key, value)
    return client


@pytest.mark.sampled(5)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
@pytest.mark.parametrize(("neighbours", "scale"), [(1, 1.0), (7, 0.5), (40, 2.0), (99, 1.0)])
@pytest.mark.parametrize("name", ["knn-per", "silobn+knn-per"])
def test_its_predictions_are_those_of_scikit_learns_neighbours(share, neighbours, scale, name):
    """Weighted by exp(-d / scale), d Euclidean and not squared; mixed as probabilities."""
    client = made(name, knn_lambda=share, knn_neighbours=neighbours, knn_scale=scale)
    loss, _, metrics = client.evaluate(client.get_parameters({}), PULLED)
    model = client.task.model.eval()
    train, test = client.task.train, client.task.evaluation["test"]

    def features(examples):
        x, y = examples.prepared(np.arange(len(examples)))
        with torch.no_grad():
            return model[:4](x).double().numpy(), y.numpy(), model(x).double().softmax(1).numpy()

    (stored, labels, _), (z, y, p) = features(train), features(test)
    k = min(neighbours, 40)
    voting = KNeighborsClassifier(k, weights=lambda d: np.exp(-d / scale)).fit(stored, labels)
    mixed = share * voting.predict_proba(z) + (1 - share) * p
    assert loss == pytest.approx(-np.log(mixed[np.arange(len(y)), y]).mean(), rel=1e-3)
    assert metrics["accuracy"] == pytest.approx((mixed.argmax(1) == y).mean(), abs=0.05)


def test_probabilities_are_mixed_by_hand():
    """p = (1/2, 1/2); of the two nearest, at distances 1 and 2, one is of each class. In FL-bench logits are
    added to the neighbours' probabilities: with logits of 100 these would not count."""
    client = made(knn_lambda=0.5, knn_neighbours=2, knn_scale=1.0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    nn.init.zeros_(model[1].weight)
    nn.init.constant_(model[1].bias, 100.0)
    columns = {"x": np.float32([[1], [-2], [50]]), "y": np.array([0, 1, 1])}
    client.task = replace(
        client.task, model=model, train=replace(client.task.train, columns=columns, rows=np.arange(3))
    )
    output = client.predictor()(torch.zeros(1, 1))
    vote = np.exp(-1) / (np.exp(-1) + np.exp(-2))
    np.testing.assert_allclose(
        output.exp().numpy(force=True)[0], [0.25 + vote / 2, 0.75 - vote / 2], rtol=1e-5
    )


def test_far_examples_and_impossible_classes_have_a_finite_loss():
    client = made(knn_lambda=0.9, knn_scale=1e-6)
    client.task.model[4].bias.data[0] = -500.0
    client.task = replace(
        client.task, initial={n: e.numpy().copy() for n, e in client.task.model.state_dict().items()}
    )
    loss, _, _ = client.evaluate(client.get_parameters({}), PULLED)
    assert np.isfinite(loss)


def test_it_trains_and_shares_as_without_and_keeps_nothing():
    ours, theirs = (make_client(cls, RecordDict()) for cls in (KNNPerClient, FedAvgClient))
    one, other = (client.fit(client.get_parameters({}), CONFIG) for client in (ours, theirs))
    for a, b in zip(one.arrays, other.arrays, strict=True):
        np.testing.assert_array_equal(a, b)
    ours.memory.commit()
    assert ours.memory._store.groups() == {}


def test_a_new_client_votes_by_its_own_examples_and_one_without_any_does_not():
    client, plain = (make_client(cls) for cls in (KNNPerClient, FedAvgClient))
    start = client.get_parameters({})
    new = PULLED | {"own-statistics": False}
    assert (
        client.evaluate(start, new)[0]
        == client.evaluate(start, PULLED)[0]
        != plain.evaluate(start, PULLED)[0]
    )
    client.task = replace(client.task, train=replace(client.task.train, rows=np.arange(0)))
    assert client.evaluate(start, PULLED)[0] == pytest.approx(plain.evaluate(start, PULLED)[0])


class Elsewhere(nn.Module):
    """Its forward never calls its head."""

    head = "unused"

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.used(x.flatten(1))


@pytest.mark.parametrize(
    ("model", "problem", "why"),
    [
        (small_model(), Regression(), "neighbours vote for classes, and there are none to choose from"),
        (Elsewhere(), Classification(), "the forward of Elsewhere does not call its head 'unused'"),
        (small_model(), Classification(), ""),
    ],
)
def test_which_models_it_takes(model, problem, why):
    assert KNNPerClient.misfit(model.eval(), problem, torch.zeros(2, 1, 2, 2)) == why
