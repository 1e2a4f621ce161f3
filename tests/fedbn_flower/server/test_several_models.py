"""Runs of strategies that keep several models: whose is which, resumed runs, folders, refusals."""

import json
from itertools import cycle

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedbn_flower import simulate
from fedbn_flower.core.errors import UserError
from fedbn_flower.results.checkpoints.checkpoint_folder import CheckpointFolder
from tests.quick import some_quick

SETTINGS = {
    "ifca": {"clusters": 3},
    "cfl": {"cfl_eps_1": 9.0, "cfl_eps_2": 0.0, "cfl_from_round": 1},
    "fedap": {"fedap_lambda": 0.4},
    "fedpac": {"objective": "fedpac", "client": "fedpac"},
    "fedamp": {"objective": "fedprox", "mu": 0.1, "fedamp_sigma": 10.0},
}
RUN = {
    "dataset": "scanners",
    "client": "shared",
    "num_clients": 4,
    "fraction_train": 0.75,
    "dropout": 0.2,
    "backend": "inline",
}


def run(strategy, folder, **keys):
    return simulate(strategy=strategy, run_dir=folder, **{**RUN, **SETTINGS[strategy], **keys})


def models_in(folder):
    files = {path.stem: load_file(path) for path in sorted((folder / "models").glob("*.safetensors"))}
    return {"main": load_file(folder / "model.safetensors"), **files}


def same(ours, others):
    assert ours.keys() == others.keys()
    for name, model in ours.items():
        for entry, array in model.items():
            np.testing.assert_array_equal(array, others[name][entry], err_msg=f"{name}: {entry}")


@pytest.mark.parametrize("strategy", some_quick(SETTINGS, {0, 3}))
def test_a_clients_model_is_its_own(tmp_path, strategy):
    result = run(strategy, tmp_path / "run", rounds=2)
    names, models = json.loads((result.folder / "models/clients.json").read_text()), models_in(result.folder)
    last = result.clients[(result.clients["round"] == 2) & (result.clients.phase == "evaluate")]
    evaluated = dict(zip(last.partition.astype(str), last.model, strict=True))
    assert {client: name for client, name in evaluated.items() if name != "main"} == names
    for client in range(4):
        own = {name: entry.numpy() for name, entry in result.model(client=client).state_dict().items()}
        same({"own": own}, {"own": models[evaluated[str(client)]]})
    main = {name: entry.numpy() for name, entry in result.model().state_dict().items()}
    same({"own": main}, {"own": models["main"]})
    assert result.summary["global"] is None
    assert 0 < result.summary["mean"]["accuracy"] <= 1
    checkpoint = CheckpointFolder(result.folder / "checkpoint").load()
    assert checkpoint.models.keys() == models.keys() - {"main"}


REFUSED = {
    "mean": "median",
    "protocol": "fedbuff:2",
    "compress": "bf16",
    "compress_down": "bf16",
    "selection": "power-of-choice:3",
    "client": "hbn",
    "decide_by": "server",
}


@pytest.mark.parametrize(("key", "strategy"), list(zip(REFUSED, cycle(SETTINGS), strict=False)))
def test_what_knows_of_one_model_is_refused_in_a_line(tmp_path, strategy, key):
    with pytest.raises(UserError) as caught:
        run(
            strategy,
            tmp_path / "run",
            **{key: REFUSED[key]},
            **({"dropout": 0.0} if key == "protocol" else {}),
        )
    assert str(caught.value).startswith(f"{key.replace('_', '-')}: {REFUSED[key]!r} is not allowed")
    assert f"strategy {strategy!r}" in str(caught.value) or f"strategy={strategy}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_privacy_is_refused(tmp_path):
    with pytest.raises(UserError, match="^dp: 'client' is not allowed"):
        run(
            "ifca", tmp_path / "run", dp="client", dp_noise=1.0, dp_clip=1.0, weighting="uniform", dropout=0.0
        )


@pytest.mark.parametrize(("keys", "why"), [({"client": "fedbn"}, "shares"), ({"norm": "layer"}, "BatchNorm")])
def test_fedap_needs_shared_statistics(tmp_path, keys, why):
    with pytest.raises(UserError, match="strategy 'fedap', which compares clients") as caught:
        run("fedap", tmp_path / "run", **keys)
    assert why in str(caught.value)


def test_fedpac_needs_a_head_that_travels(tmp_path):
    with pytest.raises(UserError, match="^freeze: .* strategy 'fedpac', which mixes heads"):
        run("fedpac", tmp_path / "run", model="mlp-bn", freeze="4")


def test_new_clients_choose_too(tmp_path):
    result = run("ifca", tmp_path / "run", rounds=2, holdout_clients=1, fraction_train=1.0, dropout=0.0)
    new = result.clients[result.clients.phase == "new"]
    assert len(new) == 1
    assert new.model.str.startswith("cluster-").all()


def test_models_to_choose_from_have_to_differ(tmp_path):
    first = run("ifca", tmp_path / "run", rounds=1)
    with pytest.raises(UserError, match=r"^init: .* its models have to differ"):
        run("ifca", tmp_path / "again", init=str(first.folder))
    (tmp_path / "fixed.py").write_text(
        "from torch import nn\n\n\ndef fixed(spec):\n    model = nn.Linear(spec.size, spec.outputs)\n"
        "    for weights in model.parameters():\n        nn.init.zeros_(weights)\n"
        "    return nn.Sequential(nn.Flatten(), model)\n"
    )
    with pytest.raises(UserError, match=r"^model: .* drawn when it is made, .* its models have to differ"):
        run("ifca", tmp_path / "fixed", model=f"{tmp_path / 'fixed.py'}:fixed")


def test_models_differ_by_seed_and_the_first_is_the_runs(tmp_path):
    """With a rate of nothing, models stay what they were when they began."""
    still = {"rounds": 1, "client_lr": 1e-30, "weighting": "uniform"}
    ours, others = (models_in(run("ifca", tmp_path / str(s), seed=s, **still).folder) for s in (0, 1))
    one = simulate(strategy="fedavg", run_dir=tmp_path / "one", **{**RUN, **still})
    weights = [name for name, entry in ours["main"].items() if entry.ndim == 2]
    of_run = load_file(one.folder / "model.safetensors")
    for name in weights:
        np.testing.assert_allclose(ours["cluster-0"][name], of_run[name], atol=1e-7)
        several = [m[f"cluster-{k}"][name] for m in (ours, others) for k in range(3)]
        assert len({array.tobytes() for array in several}) == 6
