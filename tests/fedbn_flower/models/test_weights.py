"""Weights to start from: what fits is taken, what does not is listed."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedbn_flower import UserError
from fedbn_flower.models.weights import load_weights


def network(outputs=2, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))


@pytest.fixture
def saved(tmp_path):
    def save(entries, name="weights.safetensors"):
        path = tmp_path / name
        save_file(entries, path) if path.suffix == ".safetensors" else torch.save(entries, path)
        return str(path)

    return save


def same(model, other, *names):
    return all(torch.equal(model.state_dict()[n], other.state_dict()[n]) for n in names or model.state_dict())


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pt"])
def test_a_whole_file_is_taken_whole(saved, name, wrapper):
    source, model = network(seed=1), network()
    if wrapper and name.endswith("safetensors"):
        return
    entries = {wrapper: source.state_dict(), "epoch": 3} if wrapper else source.state_dict()
    found = load_weights(model, saved(entries, name), strict=True)
    assert same(model, source)
    assert found.complete
    assert len(found.taken) == 9
    assert str(found) == f"init: 9 of 9 entries are from {found.source!r}"


def test_another_number_of_classes_and_other_names_are_listed_and_left(saved):
    source, model, before = network(outputs=5, seed=1), network(), network()
    entries = source.state_dict() | {"extra": torch.ones(1)}
    del entries["1.weight"]
    found = load_weights(model, saved(entries))
    assert same(model, source, "0.weight", "0.bias", "1.bias", "1.running_mean")
    assert same(model, before, "1.weight", "2.weight", "2.bias")
    assert found.left_out == (
        "of another shape: 2.weight (5x4, not 2x4), 2.bias (5, not 2); not in it: 1.weight; "
        "not in the model: extra"
    )
    assert json.loads(json.dumps(found.as_record()))["missing"] == ["1.weight"]
    with pytest.raises(UserError, match=r"^init: '.*' is not allowed; expected weights that all fit, with"):
        load_weights(network(), found.source, strict=True)


def test_half_precision_is_cast(saved):
    source, model = network(seed=1), network()
    entries = {n: e.bfloat16() if e.is_floating_point() else e for n, e in source.state_dict().items()}
    load_weights(model, saved(entries))
    assert model[0].weight.dtype == torch.float32
    assert torch.equal(model[0].weight, source[0].weight.bfloat16().float())


def test_a_tied_tensor_needs_one_of_its_names(saved):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    entries = {name: torch.full_like(e, 7) for name, e in model.state_dict().items() if name != "0.weight"}
    assert load_weights(model, saved(entries), strict=True).complete
    assert (model[0].weight == 7).all()


def test_a_softmax_of_the_run_is_not_part_of_the_names(saved, tmp_path):
    source, model = network(seed=1), network()
    saved(nn.Sequential(source, nn.Softmax(1)).state_dict(), "model.safetensors")
    (tmp_path / "config.json").write_text('{"softmax-output": true}')
    load_weights(model, str(tmp_path), strict=True)
    assert same(model, source)


class Evil:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, r"is not allowed; expected FILE.safetensors, .*, which exists$"),
        (lambda path: path.write_bytes(b"nothing"), "cannot be read as weights"),
        (lambda path: torch.save({"0.weight": Evil()}, path), "cannot be read as weights"),
        (lambda path: path.write_bytes(pickle.dumps(Evil())), "cannot be read as weights"),
        (lambda path: torch.save({"epoch": 1}, path), "it holds no tensors by name$"),
        (lambda path: torch.save([torch.ones(2)], path), "it holds no tensors by name$"),
        (
            lambda path: torch.save({"weight": torch.ones(2)}, path),
            r"of which some fit the model \(not in it: 0",
        ),
        (lambda path: path.mkdir(), "a run's folder: it has no model.safetensors$"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, write, message):
    path = tmp_path / "weights.pt"
    write(path)
    with pytest.raises(UserError, match=f"^init: .*{message}") as error:
        load_weights(network(), str(path))
    assert "\n" not in str(error.value)
    assert "executed" not in capsys.readouterr().out
