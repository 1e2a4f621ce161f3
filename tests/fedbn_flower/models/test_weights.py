"""Weights to start from: what fits is taken, what does not is listed; torn and hostile files are a line."""

import io
import json
import pickle
import random
import struct

import pytest
import torch
from safetensors.torch import save, save_file
from torch import nn

from fedbn_flower import UserError
from fedbn_flower.models.weights import load_weights

SEED = 46


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
    entries["1.bias"] = entries["1.bias"].to(torch.int8)  # as a quantized network has them
    found = load_weights(model, saved(entries))
    assert same(model, source, "0.weight", "0.bias", "1.running_mean")
    assert same(model, before, "1.weight", "1.bias", "2.weight", "2.bias")
    assert found.left_out == (
        "of another shape or type: 1.bias (int8, not float32), 2.weight (5x4, not 2x4), 2.bias (5, not 2); "
        "not in it: 1.weight; not in the model: extra"
    )
    assert json.loads(json.dumps(found.as_record()))["missing"] == ["1.weight"]
    with pytest.raises(UserError, match=r"^init: '.*' is not allowed; expected weights that all fit, with"):
        load_weights(network(), found.source, strict=True)


def test_what_peft_wraps_is_taken_under_its_plain_names(saved):
    source = nn.Linear(3, 2)
    model = nn.Linear(3, 2)
    for name in ("base_layer", "0", "model", "base_model"):
        model = nn.ModuleDict({name: model})
    found = load_weights(model, saved({f"0.{name}": entry for name, entry in source.state_dict().items()}))
    assert found.taken == ("base_model.model.0.base_layer.weight", "base_model.model.0.base_layer.bias")
    assert found.complete
    assert all(map(torch.equal, model.state_dict().values(), source.state_dict().values()))


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


def as_pt(content, zipped=True):
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


WHOLE = {
    "w.safetensors": save(network().state_dict()),
    "w.pt": as_pt(network().state_dict()),
    "old.pt": as_pt(network().state_dict(), zipped=False),
}


def mutated(content, rng):
    """The content torn, with other bytes, with a part of it twice, gone, or empty, or of random bytes."""
    kind, size = rng.randrange(6), len(content)
    start, stop = sorted(rng.randrange(size + 1) for _ in range(2))
    if kind == 0:
        return content[:start]
    if kind == 1:
        changed = bytearray(content)
        for _ in range(rng.choice((1, 2, 8, 64))):
            changed[rng.randrange(min(size, rng.choice((64, 600, size))))] = rng.randrange(256)
        return bytes(changed)
    if kind == 2:
        return content[:stop] + content[start:]
    if kind == 3:
        return content[:start] + content[stop:]
    if kind == 4:
        return content[:start] + bytes(stop - start) + content[stop:]
    return rng.randbytes(rng.choice((0, 1, 8, 100, 1000)))


def check(path):
    """A model that can be used, or one printable line."""
    try:
        load_weights(network(), str(path))
    except UserError as error:
        line = str(error)
        assert line.startswith("init: ")
        assert line.isprintable()
        assert "weights_only" not in line
        assert "torch.load" not in line
        return line
    return ""


@pytest.mark.parametrize("count", [25, pytest.param(175, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.filterwarnings("ignore")
def test_a_torn_file_is_a_model_or_a_line(tmp_path, name, count):
    """600 files in all, always the same."""
    rng, path = random.Random(f"{SEED} {name} {count}"), tmp_path / name
    for _ in range(count):
        path.write_bytes(mutated(WHOLE[name], rng))
        check(path)


class Runs:
    def __reduce__(self):
        return (print, ("code of the file has run",))


def with_header(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(64)


UNREADABLE, NAMELESS = "cannot be read as weights", "it holds no tensors by name"
HOSTILE = {
    "code.pt": (pickle.dumps(Runs()), UNREADABLE),
    "code-in-zip.pt": (as_pt({"0.weight": Runs()}), UNREADABLE),
    "module.pt": (as_pt(network()), UNREADABLE),
    "sparse.pt": (as_pt({"0.weight": torch.eye(4)[:, :3].to_sparse()}), "init: "),
    "complex.pt": (as_pt({"0.weight": torch.zeros(4, 3, dtype=torch.complex64)}), "init: "),
    "meta.pt": (as_pt({"0.weight": torch.zeros(4, 3, device="meta")}), "init: "),
    "quantized.pt": (
        as_pt({"0.weight": torch.quantize_per_tensor(torch.zeros(4, 3), 0.1, 0, torch.quint8)}),
        "init: ",
    ),
    "names.pt": (
        as_pt({"\x1b[2J\n": torch.zeros(1), 7: torch.zeros(1), "0.weight": torch.zeros(3, 4)}), "init: ",
    ),
    "unfit.pt": (as_pt({"weight": torch.ones(2)}), "of which some fit the model (not in it: 0"),
    "nothing-by-name.pt": (as_pt({"epoch": 1}), NAMELESS),
    "list.pt": (as_pt([torch.zeros(1)]), NAMELESS),
    "text.pt": (b"version https://git-lfs.github.com/spec/v1\n", UNREADABLE),
    "empty.pt": (b"", UNREADABLE),
    "long.safetensors": (struct.pack("<Q", 2**62) + b"{}", UNREADABLE),
    "shape.safetensors": (
        with_header({"0.weight": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 64]}}), UNREADABLE,
    ),
    "offsets.safetensors": (
        with_header({"0.weight": {"dtype": "F32", "shape": [4], "data_offsets": [60, 4]}}), UNREADABLE,
    ),
    "names.safetensors": (
        with_header({"\x1b[2J": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}), "init: ",
    ),
    "nothing.safetensors": (b"", UNREADABLE),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore")
def test_a_hostile_file_is_a_line_and_runs_no_code(tmp_path, capfd, name):
    path, (content, words) = tmp_path / name, HOSTILE[name]
    path.write_bytes(content)
    assert words in check(path)
    assert "code of the file" not in "".join(capfd.readouterr())


def test_a_file_that_is_not_there_and_a_folder_without_a_model_are_lines(tmp_path):
    assert check(tmp_path / "weights.pt").endswith("which exists")
    assert check(tmp_path).endswith("a run's folder: it has no model.safetensors")
