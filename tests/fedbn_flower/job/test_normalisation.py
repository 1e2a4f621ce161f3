"""Runs with another normalisation: what travels and is kept, resumed, exported, private, in lockstep."""

import numpy as np
import pytest
import torch
from torch import nn

from fedbn_flower.api.result import load_model
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.cohorts import cohort_size


@pytest.mark.slow
def test_a_folder_knows_its_norm_and_momentum(run, tmp_path):
    result = run(norm="scaled-ws", client="shared", run_dir="saved")
    model, loaded = result.model(), load_model(tmp_path / "saved")
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(model(x), loaded(x))
    plain = run(norm="none", client="shared", init="saved")  # the same entries, another function
    assert not torch.equal(plain.model()(x), loaded(x))
    result.export("model.pt", format="torchscript")
    torch.testing.assert_close(torch.jit.load("model.pt")(x), model(x))
    kept = run(bn_momentum=0.25, client="shared")
    assert kept.model()[2].momentum == 0.25


def test_pretrained_entries_of_batch_norm_are_taken(run):
    before = run(client="shared", run_dir="before").model()
    after = run(
        norm="layer", client="shared", init="before", client_lr=1e-12, server_lr=1e-12, strategy="fedavg"
    )
    for name in ("weight", "bias"):
        torch.testing.assert_close(getattr(after.model()[2], name), getattr(before[2], name))


@pytest.mark.slow
def test_single_examples_are_protected_with_group_norm(run):
    keys = {"dp": "example", "dp_noise": 1.0, "dp_delta": 1e-5, "client": "shared", "strategy": "fedavg"}
    with pytest.raises(UserError, match="or by norm 'group:G'"):
        run(**keys)
    result = run(**keys, norm="group:4")
    assert result.summary["privacy"]["epsilon"] > 0
    assert run(**keys, norm="scaled-ws", agc=0.1).summary["failures"] == 0


def test_groups_of_one_value_are_refused_but_in_a_model_that_has_them(configured, tmp_path):
    """A value less the mean of itself is 0."""
    with pytest.raises(UserError, match="^norm: 'group:128' .* one value a group, and nothing is left"):
        Federation(configured(model="mlp-bn", norm="group:128", client="shared"))
    layers = "nn.Flatten(), nn.Linear(64, 4), nn.GroupNorm(4, 4), nn.Linear(4, 10)"
    (tmp_path / "own.py").write_text(f"from torch import nn\ndef net(spec): return nn.Sequential({layers})\n")
    Federation(configured(model=f"{tmp_path / 'own.py'}:net", client="shared"))


def test_group_norm_trains_one_by_one_and_says_so(configured, caplog):
    pytest.importorskip("fedbn_flower.lockstep")
    caplog.set_level("INFO", "flwr.fedbn")
    keys = {"num_clients": 16, "partition": "iid", "client": "shared"}
    lines = {}
    for norm in ("keep", "group:4"):
        caplog.clear()
        cohort_size(inputs_of(configured(**keys, norm=norm)))
        lines[norm] = next(line for line in caplog.messages if line.startswith("clients train "))
    assert lines["keep"] == "clients train 8 at a time: in lockstep"
    assert lines["group:4"] == "clients train one by one: module 2 (GroupNorm) is not supported"


@pytest.mark.slow
def test_cumulative_statistics_are_the_mean_over_all_batches(run, caplog):
    """One client, SGD of no rate: its batches' means, all alike, by hand; and one by one."""
    data = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    keys = {"data": (data, np.arange(40) % 2, data[:10], np.arange(10) % 2), "num_clients": 1}
    keys |= {"model": "mlp-bn", "client": "shared", "strategy": "fedavg", "batch_size": 10}
    keys |= {"client_lr": 1e-12, "partition": "iid"}
    model = run(**keys, bn_momentum="cumulative", rounds=3).model()
    inner = data @ model[1].weight.detach().numpy().T + model[1].bias.detach().numpy()
    np.testing.assert_allclose(model[2].running_mean.numpy(), inner.mean(0), atol=1e-5)
    assert model[2].num_batches_tracked == 12
    other = run(**keys, rounds=3).model()[2].running_mean.numpy()
    np.testing.assert_allclose(other, (1 - 0.9**12) * inner.mean(0), atol=0.2)
    assert np.abs(other - inner.mean(0)).max() > 0.01


@pytest.mark.parametrize(
    ("value", "found"), [("0.5", 0.5), (0.5, 0.5), (1, 1), ("cumulative", "cumulative"), ("auto", "auto")]
)
def test_a_momentum_as_text_or_number(configured, value, found):
    assert configured(bn_momentum=value).bn_momentum == found


@pytest.mark.parametrize("value", [0, 1.5, "fast", True])
def test_a_momentum_that_there_is_not(configured, value):
    with pytest.raises(
        UserError, match=r"^bn-momentum: .* expected auto, cumulative, or a number in \(0, 1\]"
    ):
        configured(bn_momentum=value)


def test_instance_norm_has_no_cumulative_mean(run):
    def model():
        norm = nn.InstanceNorm2d(1, track_running_stats=True)
        return nn.Sequential(norm, nn.Flatten(), nn.Linear(64, 10))

    with pytest.raises(UserError, match="torch has no cumulative mean for '0', InstanceNorm2d"):
        run(model=model, bn_momentum="cumulative")
