"""Torn and hostile files of weights: what they give is a model or a line of our own, never a traceback."""

import io
import json
import pickle
import random
import struct

import pytest
import torch
from safetensors.torch import save
from torch import nn

from fedbn_flower import UserError
from fedbn_flower.models.weights import load_weights

SEED = 46


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


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


@pytest.mark.parametrize("count", [40, pytest.param(360, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.filterwarnings("ignore")
def test_a_torn_file_is_a_model_or_a_line(tmp_path, name, count):
    """1,200 files in all, always the same."""
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


HOSTILE = {
    "code.pt": pickle.dumps(Runs()),
    "code-in-zip.pt": as_pt({"0.weight": Runs()}),
    "module.pt": as_pt(network()),
    "sparse.pt": as_pt({"0.weight": torch.eye(4)[:, :3].to_sparse()}),
    "complex.pt": as_pt({"0.weight": torch.zeros(4, 3, dtype=torch.complex64)}),
    "meta.pt": as_pt({"0.weight": torch.zeros(4, 3, device="meta")}),
    "quantized.pt": as_pt({"0.weight": torch.quantize_per_tensor(torch.zeros(4, 3), 0.1, 0, torch.quint8)}),
    "names.pt": as_pt({"\x1b[2J\n": torch.zeros(1), 7: torch.zeros(1), "0.weight": torch.zeros(3, 4)}),
    "list.pt": as_pt([torch.zeros(1)]),
    "text.pt": b"version https://git-lfs.github.com/spec/v1\n",
    "empty.pt": b"",
    "long.safetensors": struct.pack("<Q", 2**62) + b"{}",
    "shape.safetensors": with_header(
        {"0.weight": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 64]}}
    ),
    "offsets.safetensors": with_header({"0.weight": {"dtype": "F32", "shape": [4], "data_offsets": [60, 4]}}),
    "names.safetensors": with_header({"\x1b[2J": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}),
    "nothing.safetensors": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore")
def test_a_hostile_file_is_a_line_and_runs_no_code(tmp_path, capfd, name):
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    line = check(path)
    assert line or name in ("sparse.pt", "quantized.pt")
    assert "code of the file" not in "".join(capfd.readouterr())
