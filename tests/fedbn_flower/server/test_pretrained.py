"""Runs from weights and with frozen parts: what cannot change does not travel, and changes no bit."""

import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import clients.base
from clients.modules.frozen import split
from fedbn_flower import RunFailed, UserError, load_model
from fedbn_flower.core.input_spec import InputSpec
from fedbn_flower.job import inputs as inputs_module
from fedbn_flower.job.initial_model import build_model
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.manifest import read_manifest
from fedbn_flower.runtime.grid import node_context
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import inputs_at

HEAD = (10 * 128 * 4 + 128) + (10 * 4 + 128)
"""Bytes of the head of mlp-bn on digits: two float32 arrays, each with the 128 bytes of an npy header."""
STATISTICS = (128 * 4 + 128) * 2 + (8 + 128)
"""Bytes of its BatchNorm's running mean, running variance and counter."""
FROZEN = {"1.weight", "1.bias", "2.weight", "2.bias"}
BUFFERS = {"2.running_mean", "2.running_var", "2.num_batches_tracked"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Another seed's weights of mlp-bn on digits, with statistics that no BatchNorm starts from."""
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    model = build_model("mlp-bn", InputSpec((1, 8, 8), 10), False, 9)
    model[2].running_mean.fill_(0.25)
    save_file(model.state_dict(), path)
    return path


def entries_of(path):
    with safe_open(path, "np") as file:
        return set(file.keys())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("frozen_bn", "size"), [("eval", HEAD), ("adapt", HEAD + STATISTICS)])
@pytest.mark.parametrize("keys", [{"train": "4"}, {"freeze": "1,2"}])
def test_no_frozen_byte_is_sent(run, keys, frozen_bn, size):
    """Two clients get the model twice a round, to train and to evaluate, and answer once."""
    result = run(client="shared", frozen_bn=frozen_bn, **keys)
    assert result.history["bytes-sent"].tolist() == [4 * size] * 2
    assert result.history["bytes-received"].tolist() == [2 * size] * 2
    saved = entries_of(result.folder / "checkpoint" / "server.safetensors")
    assert {name for name in saved if name.startswith("model/")} == {"model/4.weight", "model/4.bias"} | (
        {f"model/{name}" for name in BUFFERS} if frozen_bn == "adapt" else set()
    )


MEASURES = [
    {"strategy": "fedavg", "client": "shared"},
    {"strategy": "fedavg", "client": "shared", "mean": "median", "clip_update_norm": 0.5},
    {"strategy": "fedyogi", "client": "silobn", "objective": "fedprox"},
    {"strategy": "feddyn", "client": "fedbn", "objective": "feddyn"},
    {"strategy": "scaffold", "client": "shared", "objective": "scaffold"},
    {"strategy": "fedavg", "client": "shared", "objective": "moon", "freeze": "1", "train": ""},
    {"strategy": "fedavg", "client": "fedbn+ditto"},
    {"strategy": "fedavg", "client": "fedrep", "freeze": "1", "train": ""},
    {"strategy": "fedavg", "client": "fedbn", "fine_tune": 2, "eval_model": "local"},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "frozen_bn"),
    [
        pytest.param(keys, frozen_bn, marks=[pytest.mark.exhaustive] * ((i + j) % 2))
        for i, keys in enumerate(MEASURES)
        for j, frozen_bn in enumerate(["eval", "adapt"])
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(map(str, given.values())),
)
def test_the_result_is_that_of_sending_all(run, weights, monkeypatch, keys, frozen_bn):
    """Each with one treatment of frozen BatchNorm for each change."""
    keys = {"init": weights, "train": "4", "frozen_bn": frozen_bn, "eval_data": "global"} | keys
    found = run(**keys)
    with monkeypatch.context() as patch:
        for module in (clients.base, inputs_module):
            patch.setattr(module, "split", lambda names, local, _: split(names, local, ()))
        everything = run(**keys)
    assert everything.history["bytes-sent"].iloc[0] > found.history["bytes-sent"].iloc[0]
    for client in (0, 1):
        models = [one.model(client).state_dict() for one in (found, everything)]
        assert all(torch.equal(entry, models[1][name]) for name, entry in models[0].items())
        assert torch.equal(models[0]["1.weight"], load_file(weights)["1.weight"])
    histories = (one.history.filter(regex="^(?!global).*(loss|accuracy)") for one in (found, everything))
    np.testing.assert_array_equal(*(history.to_numpy() for history in histories))


@pytest.mark.slow
def test_frozen_entries_are_in_no_memory(run):
    for client, objective in (("ditto", "plain"), ("fedbn", "moon")):
        result = run(client=client, objective=objective, freeze="1", strategy="fedavg", rounds=1)
        file = max((result.folder / "checkpoint" / "clients").glob("client-0-*"))
        names = {name.partition("/")[2] for name in entries_of(file)}
        assert names
        assert not names & {"1.weight", "1.bias"}


@pytest.mark.slow
@pytest.mark.parametrize(("frozen_bn", "objective"), [("eval", "scaffold"), ("adapt", "plain")])
def test_lockstep_is_one_by_one(run, weights, frozen_bn, objective):
    keys = {
        "init": weights, "freeze": "1,2", "frozen_bn": frozen_bn, "objective": objective, "client": "shared",
        "strategy": "scaffold" if objective == "scaffold" else "fedavg", "num_clients": 16,
        "partition": "dirichlet:0.5",
    }  # fmt: skip
    together, alone = (run(**keys, fast=fast).model().state_dict() for fast in ("auto", "off"))
    for name, entry in together.items():
        torch.testing.assert_close(entry, alone[name], atol=1e-5, rtol=1e-5)
    for name in FROZEN | (BUFFERS if frozen_bn == "eval" else set()):
        assert torch.equal(together[name], load_file(weights)[name])


def test_a_run_goes_on_to_the_same_bits_while_its_weights_are_there(run, weights, tmp_path):
    own = shutil.copy(weights, tmp_path / "own.safetensors")
    keys = {"client": "fedbn", "train": "4", "frozen_bn": "adapt"}
    whole = run(init=weights, rounds=3, **keys)
    parts = run(init=own, run_dir="parts", **keys)
    shutil.move(own, tmp_path / "elsewhere.safetensors")
    with pytest.raises(UserError, match=r"^init: .*own.safetensors' is not allowed; expected FILE"):
        run(resume="parts", rounds=3)
    changed = load_file(weights)
    changed["1.bias"] += 1
    save_file(changed, own)
    with pytest.raises(UserError, match="does not hold the weights that the run was started with"):
        run(resume="parts", rounds=3)
    parts = run(resume="parts", rounds=3, init=tmp_path / "elsewhere.safetensors")
    for client in (0, 1):
        one, other = (result.model(client).state_dict() for result in (whole, parts))
        assert all(torch.equal(entry, other[name]) for name, entry in one.items())


@pytest.mark.slow
def test_a_saved_model_is_whole_and_a_start_for_the_next(run, weights):
    """Without the file of weights; a third class that the first model has not is left at random."""
    result = run(client="shared", init=weights, train="4")
    assert load_file(result.folder / "model.safetensors").keys() == load_file(weights).keys()
    model = load_model(result.folder)
    assert all(p.requires_grad for p in model.parameters())
    again = run(client="shared", init=result.folder, init_strict=True, rounds=1, client_lr=1e-30)
    assert torch.equal(again.model()[1].weight, model[1].weight)


def test_what_does_not_fit_is_in_the_log_and_the_record(run, weights, caplog, tmp_path):
    entries = load_file(weights) | {"4.weight": torch.zeros(3, 128), "4.bias": torch.zeros(3)}
    save_file(entries, tmp_path / "three.safetensors")
    result = run(client="shared", init="three.safetensors", rounds=1)
    (line,) = [line for line in caplog.messages if line.startswith("init: ")]
    assert line.endswith(
        "7 of 9 entries are from "
        f"{str(tmp_path / 'three.safetensors')!r}; of another shape or type: 4.weight (3x128, not 10x128), "
        "4.bias (3, not 10)"
    )
    record = read_manifest(result.folder, "run-dir")["weights"]
    assert (record["taken"], record["missing"]) == (7, [])
    assert record["other-shape"] == ["4.weight (3x128, not 10x128)", "4.bias (3, not 10)"]


def test_a_client_with_other_weights_is_refused(configured, weights, tmp_path, monkeypatch):
    config = configured(init=str(weights), train="4")
    changed = load_file(weights)
    changed["1.bias"] += 1
    save_file(changed, tmp_path / "other.safetensors")
    inputs = inputs_at(config, {"init": str(tmp_path / "other.safetensors")})
    assert inputs.digest_of_start != inputs_of(config).digest_of_start
    assert inputs_at(config, {}).digest_of_start == inputs_of(config).digest_of_start

    def context(*arguments):
        made = node_context(*arguments)
        made.node_config["init"] = str(tmp_path / "other.safetensors")
        return made

    monkeypatch.setattr("fedbn_flower.runtime.grid.node_context", context)
    with pytest.raises(RunFailed, match="the frozen or pretrained weights here are not the server's"):
        simulate(Federation(config), tmp_path / "run", None)


def test_only_what_is_not_sent_has_a_digest(configured, weights):
    def digest(**keys):
        return inputs_of(configured(**keys)).digest_of_start

    assert digest(client="shared") == digest(client="fedbn") == ""
    assert digest(client="shared", init=str(weights)) == ""
    frozen = {"client": "shared", "freeze": "1"}
    found = [digest(**frozen), digest(**frozen, seed=1), digest(**frozen, init=str(weights))]
    assert len({*found, digest(client="fedbn", init=str(weights)), ""}) == 5


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"freeze": "1,hed"}, "freeze: 'hed' is not allowed; expected a name of a module or parameter"),
        ({"train": "4.wieght"}, r"train: '4.wieght' .* \(did you mean '4.weight'\?\); at the top are 1"),
        ({"freeze": "*"}, r"freeze: '\*' is not allowed; expected patterns that leave a parameter to train"),
        ({"train": "2.running_mean"}, "train: '2.running_mean' .* leave a parameter to train"),
        ({"init_strict": True}, "init-strict: True is not allowed; expected false without init"),
        ({"unfreeze_at": 2}, "unfreeze-at: 2 is not allowed; expected 0 without freeze or train"),
        ({"train": "4", "unfreeze_at": 3}, "unfreeze-at: 3 is not allowed; expected 0, or a round from 2"),
        ({"client": "fedper", "train": "4"}, "client: 'fedper' is not allowed; expected another one: no"),
    ],
)  # fmt: skip
def test_mistakes(run, keys, message):
    with pytest.raises(UserError, match=f"^{message}"):
        run(**keys)


@pytest.mark.slow
def test_frozen_batch_norm_adapts_to_each_client_s_data_or_keeps_its_statistics(run, weights):
    given = load_file(weights)
    kept = run(client="fedbn", init=weights, train="4").model(0)[2]
    assert torch.equal(kept.running_mean, given["2.running_mean"])
    one, other = (run(client="fedbn", init=weights, train="4", frozen_bn="adapt").model(i)[2] for i in (0, 1))
    assert not torch.equal(one.running_mean, other.running_mean)
    assert torch.equal(one.weight, given["2.weight"])


class Adapter(nn.Module):
    """LoRA (Hu et al. 2021): a frozen layer and a trained product of two thin matrices, 0 at first."""

    lockstep_safe = True

    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def adapted(spec):
    return nn.Sequential(nn.Flatten(), Adapter(nn.Linear(spec.size, spec.outputs)))


@pytest.mark.slow
def test_an_adapter_travels_alone_and_trains_in_lockstep(run, caplog):
    pytest.importorskip("fedbn_flower.lockstep")
    caplog.set_level("INFO", "flwr.fedbn")
    keys = {"model": adapted, "client": "shared", "strategy": "fedavg", "num_clients": 16, "partition": "iid"}
    keys |= {"rounds": 1}
    together, alone = run(**keys), run(**keys, fast="off")
    assert "clients train 8 at a time: in lockstep" in caplog.messages
    size = (2 * 64 * 4 + 128) + (10 * 2 * 4 + 128)
    assert together.history["bytes-sent"].tolist() == [32 * size]
    for name, entry in together.model().state_dict().items():
        torch.testing.assert_close(entry, alone.model().state_dict()[name], atol=1e-5, rtol=1e-5)
    assert together.model()[1].up.weight.any()
