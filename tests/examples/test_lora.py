"""Models of transformers and PEFT, which this project did not write: what trains alone travels."""

import runpy
import sys
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedbn_flower import simulate
from fedbn_flower.models import InputSpec
from fedbn_flower.names import APP
from fedbn_flower.results.manifest import read_manifest

pytestmark = pytest.mark.skipif(
    not find_spec("peft"), reason="PEFT, which brings transformers, is not installed"
)

FILE = APP / "examples" / "lora.py"
NAMES = ("ANNA", "BERT", "CLEO")
SPEAKERS = len(NAMES)
HEADER = 128
"""Bytes before the numbers of an array on the wire."""
MATRICES = 2 * 2 * 2
"""Two of rank 4 at two projections of two layers."""
FEW = 10
"""Epochs after which an adapter has moved by more than rounding."""


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    path = tmp_path_factory.mktemp("play") / "play.txt"
    rng = np.random.default_rng(0)
    words = ["so", "foul", "and", "fair", "a", "day", "i", "have", "not", "seen"]
    speeches = (f"{name}:\n{' '.join(rng.choice(words, 60))}\n" for name in NAMES)
    path.write_text("\n".join(speeches))
    return path


@pytest.fixture
def fit(play, cache_dir, tmp_path, monkeypatch):
    """`simulate` by FedAvg on the play, in this process."""
    monkeypatch.chdir(tmp_path)
    common = {
        "dataset": f"text:{play}", "num_clients": SPEAKERS, "strategy": "fedavg", "client": "shared",
        "client_optimizer": "adam", "client_lr": 0.01, "batch_size": 4, "rounds": 2, "backend": "inline",
        "progress": False, "cache_dir": cache_dir,
    }  # fmt: skip
    return lambda **keys: simulate(**common | keys)


@cache
def next_token():
    """The example's class, whose imports only these tests wait for."""
    return runpy.run_path(str(FILE))["NextToken"]


def gpt2(spec: InputSpec) -> torch.nn.Module:
    """Tied embeddings, dropout, a LayerNorm that trains whole, and PEFT inside the module, not around it."""
    import peft
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = GPT2Config(
        vocab_size=spec.outputs, n_positions=80, n_embd=16, n_layer=1, n_head=2,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    adapters = peft.LoraConfig(
        r=2, target_modules=["c_attn"], lora_dropout=0.1, modules_to_save=["ln_f"], fan_in_fan_out=True
    )
    return next_token()(peft.get_peft_model(GPT2LMHeadModel(shape), adapters))


def test_adapters_start_from_whole_weights_and_travel_alone(fit):
    """Three clients get what is shared twice a round, to train and to evaluate, and answer once."""
    whole = fit(model=f"{FILE}:whole", run_dir="whole", rounds=3)
    count = sum(p.numel() for p in whole.model().parameters())
    adapted = fit(model=f"{FILE}:lora", init="whole", run_dir="adapted", local_epochs=FEW)
    copies = 2 * SPEAKERS
    assert whole.history["bytes-sent"].tolist() == [copies * (4 * count + HEADER * 21)] * 3
    assert adapted.history["bytes-sent"].tolist() == [copies * MATRICES * (4 * 4 * 64 + HEADER)] * 2
    record = read_manifest(adapted.folder, "run-dir")["weights"]
    assert (record["taken"], len(record["missing"]), record["unused"]) == (21, MATRICES, [])
    plain, found = (load_file(f"{name}/model.safetensors") for name in ("whole", "adapted"))
    for name, entry in plain.items():
        wrapped = f"base_model.model.{name}"
        adapters = name.endswith(("q_proj.weight", "v_proj.weight"))
        layer = wrapped.replace(".weight", ".base_layer.weight") if adapters else wrapped
        assert torch.equal(found[layer], entry)
    assert all(found[name].any() for name in found if "lora_B" in name)
    assert adapted.history["loss"].iloc[-1] < whole.history["loss"].iloc[-1]


def test_tokens_take_the_place_of_characters(fit, play, tmp_path, monkeypatch):
    """By a vocabulary of byte pairs: the whole model has as many outputs, the adapters stay as thin."""
    words = ["tokenizer.py", str(play), str(tmp_path / "bpe.json"), "--size", "270"]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(APP / "examples" / "tokenizer.py"), run_name="__main__")
    keys = {"dataset": f"tokens:{tmp_path / 'bpe.json'}:{play}", "rounds": 1}
    whole = fit(model=f"{FILE}:whole", run_dir="whole", **keys)
    adapted = fit(model=f"{FILE}:lora", init="whole", run_dir="adapted", **keys)
    assert whole.model()(torch.zeros(1, 80, dtype=torch.long)).shape[1:] == (80, 270)
    count = sum(p.numel() for p in whole.model().parameters())
    copies = 2 * SPEAKERS
    assert whole.history["bytes-sent"].tolist() == [copies * (4 * count + HEADER * 21)]
    assert adapted.history["bytes-sent"].tolist() == [copies * MATRICES * (4 * 4 * 64 + HEADER)]
    assert adapted.summary["mean"]["perplexity"] < 270


def test_a_merged_model_computes_what_the_adapted_one_does(fit):
    run = fit(model=f"{FILE}:lora", rounds=1, local_epochs=FEW)
    tokens = torch.arange(160).view(2, 80) % 97
    adapted = run.model()
    with torch.no_grad():
        expected, bare = adapted(tokens), run.model().unload()(tokens)
        merged = run.model().merge_and_unload()(tokens)
    torch.testing.assert_close(merged, expected, atol=1e-5, rtol=1e-4)
    assert (bare - expected).abs().max() > 1e-3


def test_tied_embeddings_dropout_and_a_layer_that_trains_whole(fit):
    """Resumed to the same bits; what travels is two thin matrices and the LayerNorm's copy."""
    whole = fit(model=gpt2, rounds=3)
    numbers = (2 * 16 + 48 * 2) + (16 + 16)
    assert whole.history["bytes-sent"].iloc[0] == 2 * SPEAKERS * (4 * numbers + 4 * HEADER)
    fit(model=gpt2, run_dir="parts", rounds=2)
    parts = simulate(model=gpt2, strategy="fedavg", client="shared", resume="parts", rounds=3, progress=False)
    entries = whole.model().state_dict()
    assert all(torch.equal(entry, entries[name]) for name, entry in parts.model().state_dict().items())
    start = fit(model=gpt2, rounds=1, client_lr=1e-30).model().state_dict()
    trained = {name for name, entry in start.items() if not torch.equal(entry, entries[name])}
    layers = "network.base_model.model.transformer"
    assert trained == {
        f"{layers}.h.0.attn.c_attn.lora_A.default.weight",
        f"{layers}.h.0.attn.c_attn.lora_B.default.weight",
        f"{layers}.ln_f.modules_to_save.default.weight",
        f"{layers}.ln_f.modules_to_save.default.bias",
    }


def test_without_batch_norm_fedbn_is_fedavg_and_eight_clients_train_one_by_one(fit, caplog):
    caplog.set_level("INFO", "flwr.fedbn")
    keys = {"model": gpt2, "num_clients": 8, "partition": "iid", "rounds": 1}
    one, other = (fit(client=client, **keys).model().state_dict() for client in ("shared", "fedbn"))
    assert all(torch.equal(entry, other[name]) for name, entry in one.items())
    assert "clients train one by one: an example has several predictions" in caplog.messages
    assert any("keeps nothing at home" in line and "it is 'shared' here" in line for line in caplog.messages)


@pytest.mark.slow
def test_the_experiment_prints_bytes_and_perplexity(play, tmp_path, monkeypatch, capsys, pictures_not_drawn):
    """One of three speakers trains, one of three others fine-tunes, a round each."""
    speeches = play.read_text()
    more = tmp_path / "more.txt"
    more.write_text(f"{speeches}\n{speeches.replace(':', ' AGAIN:')}")
    script = str(APP / "experiments" / "lora.py")
    few = ["--clients", "1", "--rounds", "1", "--first-rounds", "1"]
    monkeypatch.setattr(sys, "argv", [script, str(more), str(tmp_path / "runs"), *few])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    runpy.run_path(script, run_name="__main__")
    head, *rows = (line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines())
    assert head[:4] == ["what trains", "rate", "bytes to clients", "from clients"]
    sent = [int(row[2].replace(",", "")) for row in rows]
    assert sent == [2 * (4 * 94656 + HEADER * 21)] * 2 + [2 * MATRICES * (4 * 4 * 64 + HEADER)]
    assert all(1 < float(row[4]) < 120 for row in rows)


@pytest.mark.slow
def test_ray_gives_the_same_bits(fit, on_the_pool):
    keys = {"model": f"{FILE}:lora", "rounds": 1}
    one, other = (fit(backend=backend, **keys).model().state_dict() for backend in ("inline", "ray"))
    assert all(torch.equal(entry, other[name]) for name, entry in one.items())
