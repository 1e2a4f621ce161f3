"""Runs of fixbn, fbn and hbn: what the server pools, what travels, refused."""

import json

import numpy as np
import pytest
import torch

from fedbn_flower.core.errors import UserError

from ..records.helpers import Watching, entries


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("client", "share"), [("fbn", 0.25), ("hbn", 0.25), ("hbn", 1.0)])
@pytest.mark.parametrize("objective", ["plain", "fedprox"])
def test_the_server_has_the_statistics_of_all_clients_inputs(run, client, share, objective):
    """Of sites of 30, 10 and 20 rows with means far apart and no step: the variance of all 60 values."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(i, 1 + i, (n, 6)) for i, n in enumerate((30, 10, 20))]).astype(np.float32)
    parts = np.split(x, (30, 40))
    data = [
        torch.utils.data.TensorDataset(torch.from_numpy(part), torch.arange(len(part)) % 2) for part in parts
    ]
    test = torch.utils.data.TensorDataset(torch.from_numpy(x[:8]), torch.arange(8) % 2)
    keys = {"data": data, "test": test, "model": "mlp-bn", "client": client, "strategy": "fedavg"}
    keys |= {"client_lr": 1e-12, "rounds": 1, f"{client}_momentum": share, "objective": objective}
    model = run(**keys, eval_data="global", run_dir="once").model(0)
    z = x.astype(np.float64) @ model[1].weight.detach().numpy().T + model[1].bias.detach().numpy()
    np.testing.assert_allclose(model[2].running_mean.numpy(), share * z.mean(0), atol=1e-5)
    np.testing.assert_allclose(model[2].running_var.numpy(), 1 - share + share * z.var(0), rtol=1e-4)


@pytest.mark.slow
def test_a_round_with_too_few_answers_changes_nothing(run):
    """The statistics of the model that stays are no moments."""
    rounds = []
    watching = Watching(lambda round_: rounds.append((len(round_.train.metrics), entries(round_))))
    keys = {"client": "fbn", "strategy": "fedavg", "num_clients": 4, "partition": "iid", "model": "mlp-bn"}
    run(**keys, min_replies=4, dropout=0.3, rounds=4, observers=[watching])
    answers = [count for count, _ in rounds]
    assert 4 in answers
    few = [i for i in range(1, 4) if answers[i] < 4]
    assert few
    for i in few:
        before, after = rounds[i - 1][1], rounds[i][1]
        assert all(np.array_equal(array, before[name]) for name, array in after.items())


@pytest.mark.slow
def test_fixed_statistics_travel_and_stay(run):
    result = run(client="fixbn", strategy="fedavg", fix_from=2, rounds=2, run_dir="two")
    once = run(client="fixbn", strategy="fedavg", fix_from=2, rounds=1, run_dir="one")
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(getattr(result.model()[2], name), getattr(once.model()[2], name))
    assert not torch.equal(result.model()[2].weight, once.model()[2].weight)


@pytest.mark.slow
def test_hybrid_layers_are_those_of_the_client(run, tmp_path):
    result = run(client="hbn", rounds=1, run_dir="saved")
    assert json.loads((tmp_path / "saved/config.json").read_text())["norm"] == "hybrid"
    assert type(result.model(0)[2]).__name__ == "HybridBatchNorm"
    assert not torch.equal(result.model(0)[2].factor, result.model(1)[2].factor)
    with pytest.raises(UserError, match="stay with each client"):
        result.model()
    averaged = run(norm="hybrid", client="shared", rounds=1)
    assert averaged.model()[2].num_batches_tracked > 0


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"client": "hbn", "norm": "layer"}, "norm: 'layer' is not allowed; expected 'hybrid'"),
        ({"client": "fbn", "compress": "sign"}, "compress: 'sign' is not allowed; expected 'none'"),
        ({"client": "fbn", "mean": "median"}, "mean: 'median' is not allowed; expected 'weighted'"),
        ({"client": "hbn", "protocol": "fedasync"}, "protocol: 'fedasync' is not allowed; expected 'sync'"),
        ({"client": "fixbn+fedbn"}, "which both decide about BatchNorm"),
        ({"client": "fbn", "fbn_momentum": 0}, "fbn-momentum: 0 is not allowed; expected a number in (0, 1]"),
        *(
            (
                {"client": client, "strategy": "fedavg", "dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3},
                "with dp 'client': it would share the BatchNorm statistics of 'mlp-bn'",
            )
            for client in ("fixbn", "fbn", "hbn")
        ),
    ],
)
def test_what_does_not_go_together(refusal, keys, line):
    assert line in refusal(**keys)


@pytest.mark.parametrize("reference", ["alone", "pooled"])
def test_a_reference_is_the_same_whatever_client_it_is_named_with(configured, reference):
    """The hybrid layers are the client's, not the model's; a norm that is chosen stays."""
    named = {configured(client=client, reference=reference).norm for client in ("fedbn", "hbn")}
    assert named == {"keep"}
    assert configured(client="fedbn", norm="layer", reference=reference).norm == "layer"
