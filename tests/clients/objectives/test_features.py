"""MOON, FedDecorr and FedProto: what goes into the head, by hand and against NumPy."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clients.objectives.features import mean_squared_correlation

from ..helpers import CONFIG, small_model
from ..helpers import make_client as small_client
from ..written import make_client


def test_features_that_are_all_zero_have_a_gradient():
    """A ReLU that lets nothing through: the similarity is 0, and nothing is not a number."""
    model = small_model()
    client = small_client("shared", model=model, objective="moon")
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
    client = make_client("shared", False, "feddecorr")
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
    client = small_client("shared", objective="fedproto")
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
