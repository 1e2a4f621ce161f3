"""Models as files that other programs run: they give the outputs of the model that was trained."""

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from fedbn_flower import Result, UserError, export_model, load_model, simulate
from fedbn_flower.cli import main
from fedbn_flower.exports.model import FORMATS, write_model
from fedbn_flower.job.initial_model import build_model
from fedbn_flower.models import InputSpec


def outputs_of(path, inputs):
    """Of the file, by ONNX Runtime or TorchScript alone."""
    if path.suffix == ".pt":
        with torch.no_grad():
            return torch.jit.load(path)(inputs).numpy()
    import onnxruntime

    (outputs,) = onnxruntime.InferenceSession(path).run(["outputs"], {"inputs": inputs.numpy()})
    return outputs


@pytest.fixture(scope="module")
def trained(cache_dir, tmp_path_factory, pictures_never_drawn):
    given = {"dataset": "digits", "rounds": 1, "batch_size": 240, "cache_dir": cache_dir}
    given |= {"backend": "inline", "progress": False}
    folder = tmp_path_factory.mktemp("export")
    return {
        client: simulate(client=client, run_dir=folder / client, **given) for client in ("shared", "fedbn")
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "client", "file", "format"),
    [("shared", None, "m.pt", "torchscript"), ("fedbn", 1, "m.onnx", "onnx")],
)
def test_a_file_gives_the_outputs_of_the_model(trained, tmp_path, run, client, file, format):
    """For another number of examples than it was traced with; of a client with its own BatchNorm."""
    inputs = torch.rand(5, 1, 8, 8)
    trained[run].export(tmp_path / file, format, client=client)
    with torch.no_grad():
        expected = load_model(trained[run].folder, client)(inputs).numpy()
    assert np.abs(outputs_of(tmp_path / file, inputs) - expected).max() < 1e-5


def test_onnx_is_told_that_any_number_of_examples_may_come(monkeypatch):
    """The first dimension of the input is dynamic, and no other; all of it is checked where it is slow."""
    given = {}

    class Program:
        class model_proto:
            @staticmethod
            def SerializeToString():
                return b"onnx"

    def export(module, arguments, **keys):
        given.update(keys, shape=tuple(arguments[0].shape))
        return Program

    monkeypatch.setattr(torch.onnx, "export", export)
    spec = InputSpec.parse("shape:1x8x8:10")
    assert FORMATS["onnx"](build_model("linear", spec, False, 0), spec.zeros(2)) == b"onnx"
    ((dynamic,),) = (given["dynamic_shapes"],)
    assert list(dynamic) == [0]
    assert given["shape"] == (2, 1, 8, 8)  # of a single example PyTorch would make a constant


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape"), [("resnet20", "3x8x8:10"), ("char-lstm-small", "5:97:characters")]
)
def test_every_family_of_models_as_onnx(tmp_path, name, shape):
    """But for the CNN of the test above."""
    spec = InputSpec.parse(f"shape:{shape}")
    module = build_model(name, spec, False, 0).eval()
    write_model(module, spec, tmp_path / "m.onnx", "onnx")
    inputs = torch.randint(0, 97, (3, 5)) if spec.predicts == "characters" else torch.rand(3, *spec.shape)
    with torch.no_grad():
        expected = module(inputs).numpy()
    assert np.abs(outputs_of(tmp_path / "m.onnx", inputs) - expected).max() < 1e-5


def test_from_the_command_line(trained, tmp_path, capsys):
    folder = trained["fedbn"].folder
    to = tmp_path / "client.pt"
    words = ["export", str(folder), "--format", "torchscript", "--client", "0"]
    assert main([*words, "--to", str(to)]) == 0
    assert capsys.readouterr().out == f"{to}\n"
    inputs = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        expected = Result(folder).model(0)(inputs).numpy()
    assert np.abs(outputs_of(to, inputs) - expected).max() < 1e-5
    assert main(words) == 0
    assert (folder / "model.pt").exists()


def test_a_table_is_predicted_by_the_file_and_what_the_run_says_of_its_inputs(tmp_path, capsys):
    """A new row is standardised by hand; without ``normalize`` it is said that nobody else can."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, 90).round(), "sex": np.resize(["f", "m"], 90)})
    frame.assign(died=(frame.age > 62) * 1).to_csv(path := tmp_path / "t.csv", index=False)
    keys = {"label_column": "died", "client": "shared", "model": "linear", "rounds": 1, "backend": "inline"}
    for normalize in (True, False):
        run = simulate(dataset=str(path), **keys, normalize=normalize, progress=False, run_dir=tmp_path / "r")
        to = tmp_path / "m.pt"
        assert main(["export", str(run.folder), "--format", "torchscript", "--to", str(to)]) == 0
        said = capsys.readouterr().err
        assert "inputs: categories are one-hot encoded in the order of 'age,sex=f|m'\n" in said
        assert ("by the mean and deviation in 'normalization' of summary.json" in said) == normalize
        assert ("each client's own training rows, which no run folder has" in said) != normalize
        assert said.count("standardised") == 1
        if normalize:
            mean, std = run.summary["normalization"].values()
            x = np.column_stack([(frame.age - mean[0]) / std[0], frame.sex == "f", frame.sex == "m"])
            outputs = torch.from_numpy(outputs_of(to, torch.tensor(x, dtype=torch.float32)))
            rows = [int(source.partition(":")[2]) - 2 for source in run.predictions.source]
            np.testing.assert_allclose(outputs.softmax(1)[rows, 1], run.predictions.score, atol=1e-6)
            summary = json.loads((path_of := run.folder / "summary.json").read_text())
            path_of.write_text(json.dumps({k: v for k, v in summary.items() if k != "normalization"}))
            assert main(["export", str(run.folder), "--format", "torchscript", "--to", str(to)]) == 0
            said = capsys.readouterr().err  # of a folder of an old version
            assert "by the mean and deviation of the run, which its folder does not hold\n" in said
            to.unlink()
            path_of.write_text("{")
            assert main(["export", str(run.folder), "--format", "torchscript", "--to", str(to)]) == 2
            assert not to.exists()
        shutil.rmtree(run.folder)


def test_without_a_global_model_a_client_is_to_be_named(trained, tmp_path, refused):
    line = refused("export", trained["fedbn"].folder, "--to", tmp_path / "m.onnx")
    assert line.startswith("client: None is not allowed; expected 0 to 1")
    assert "stay with each client" in line
    assert not (tmp_path / "m.onnx").exists()


class Branching(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("m.pt", "pickle", "format: 'pickle' is not allowed; expected one of onnx, torchscript"),
        ("no/m.pt", "torchscript", "path: cannot write"),
        pytest.param(
            "m.onnx", "onnx", "expected one in which the model can be written .Guard.*: Could not guard",
            marks=pytest.mark.slow,  # the import of ONNX
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(tmp_path, name, format, message):
    with pytest.raises(UserError, match=message) as raised:
        write_model(Branching(), InputSpec((3,), 3), tmp_path / name, format)
    assert "\n" not in str(raised.value)


def test_onnx_is_an_extra(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbn_flower.exports.model.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"onnx is not installed: pip install 'fedbn-flower\[onnx\]'"):
        export_model(trained["shared"].folder, tmp_path / "m.onnx")


def test_nothing_is_replaced_but_an_earlier_export(trained, tmp_path):
    made = {
        "letter.docx": lambda path: path.touch(),
        "pipe.pt": os.mkfifo,
        "folder.pt": lambda path: path.mkdir(),
        "device.pt": lambda path: path.symlink_to("/dev/null"),
    }
    for name, make in made.items():
        make(tmp_path / name)
        line = rf"path: '.*{name}' is not allowed; expected a new file, or one to"
        with pytest.raises(UserError, match=line):
            trained["shared"].export(tmp_path / name, "torchscript")
    assert {one.name for one in tmp_path.iterdir()} == made.keys()
    for _ in range(2):
        trained["shared"].export(tmp_path / "model.pt", "torchscript")
