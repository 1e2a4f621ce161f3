"""Every file in examples/ does what its docstring says, by the commands in it."""

import ast
import json
import math
import re
import runpy
import shlex
import tomllib

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedbn_flower import UserError, simulate
from fedbn_flower.cli import main
from fedbn_flower.cli.parser import parse
from fedbn_flower.clients import Predicted
from fedbn_flower.config.making import run_config
from fedbn_flower.job.initial_model import initial_model
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.names import APP
from fedbn_flower.results.report.sections.closing import uses_session_objects
from fedbn_flower.site.inputs import local_task

pytestmark = pytest.mark.usefixtures("pictures_not_drawn")

EXAMPLES = sorted((APP / "examples").glob("*.py"))


def commands(path):
    """The arguments of the docstring's ``run_sim.py`` line, and the run config of its ``flwr run`` line."""
    lines = ast.get_docstring(ast.parse(path.read_text())).splitlines()
    (simulated,) = (line for line in lines if line.startswith("python run_sim.py "))
    (flower,) = (line for line in lines if line.startswith("flwr run . --run-config "))
    of_flower = tomllib.loads(shlex.split(flower)[-1].replace("' ", "'\n").replace("5 ", "5\n"))
    return shlex.split(simulated)[2:], of_flower


@pytest.fixture
def ran(cache_dir, tmp_path, monkeypatch):
    """Runs an example's command in this process and gives its folder and configuration."""

    def run(name, *arguments, last=None, folder="run"):
        command, _ = commands(APP / "examples" / name)
        command[-1] = last or command[-1]
        monkeypatch.chdir(tmp_path)  # files are found from anywhere: the app's own folder is looked into
        given = (*command, "--rounds", "1", "--backend", "inline", "--cache-dir", str(cache_dir), *arguments)
        assert main([*given, "--run-dir", folder]) == 0
        config = json.loads((tmp_path / folder / "config.json").read_text())
        return load_file(tmp_path / folder / "model.safetensors"), config

    return run


def start(config):
    spec = inputs_of(run_config({"cache-dir": config["cache-dir"]})).dataset.spec
    return initial_model(config["model"], spec, False, 0).entries


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_both_commands_mean_the_same_run(path, monkeypatch):
    arguments, of_flower = commands(path)
    monkeypatch.chdir(APP)
    (simulated,) = parse(arguments)
    flower = run_config(of_flower)
    assert simulated.algorithm_settings == flower.algorithm_settings
    for key, value in of_flower.items():
        if key in {"strategy", "client", "objective", "loss", "problem", "model"}:
            assert simulated.to_user_config()[key].endswith(value)


@pytest.mark.slow
def test_signsgd_moves_every_entry_by_the_learning_rate(ran):
    model, config = ran("signsgd.py")
    assert (config["server-lr"], config["decay"]) == (0.005, 0.5)
    moved = np.abs(model["1.weight"] - start(config)["1.weight"])
    np.testing.assert_allclose(moved[moved > 0], 0.005, rtol=1e-3)
    assert (moved > 0).mean() > 0.5


@pytest.mark.slow
def test_fedper_shares_all_but_the_last_layer(ran):
    model, config = ran("fedper.py")
    assert start(config).keys() - model.keys() == {"4.weight", "4.bias"}


def test_fedper_is_not_for_a_model_of_one_layer(cache_dir, capsys):
    names = ("--client", "examples/fedper.py:FedPer", "--model", "linear")
    assert main([*names, "--cache-dir", str(cache_dir)]) == 2
    assert "expected another one: no entry is left to share" in capsys.readouterr().err


@pytest.mark.slow
def test_pull_to_zero_leaves_a_smaller_model(ran):
    pulled, config = ran("pull_to_zero.py", "--client", "shared")
    assert config["pull"] == 0.1
    free, _ = ran("pull_to_zero.py", "--client", "shared", last="0", folder="free")
    assert np.linalg.norm(pulled["1.weight"]) < 0.99 * np.linalg.norm(free["1.weight"])


@pytest.mark.slow
def test_poly_loss_at_zero_is_the_usual_one(ran):
    poly, config = ran("poly_loss.py")
    assert config["epsilon"] == 2.5
    zero, _ = ran("poly_loss.py", last="0", folder="zero")
    small = ("--rounds", "1", "--backend", "inline", "--cache-dir", config["cache-dir"])
    assert main([*small, "--run-dir", "usual"]) == 0
    usual = load_file("usual/model.safetensors")["1.weight"]
    np.testing.assert_allclose(zero["1.weight"], usual, atol=1e-5)
    assert np.abs(poly["1.weight"] - usual).max() > 1e-3


@pytest.mark.slow
def test_layer_norm_has_no_statistics(ran):
    model, _ = ran("layer_norm.py")
    assert {name: array.shape for name, array in model.items() if name.startswith("2.")} == {
        "2.weight": (128,),
        "2.bias": (128,),
    }
    assert model["1.weight"].shape == (128, 64)


def test_the_ordinal_problem_by_hand():
    """Of three classes: P(y > 0) is 3/4 and P(y > 1) 1/4; the second example's are 1/2 and 4/5."""
    file = runpy.run_path(str(APP / "examples" / "ordinal.py"))
    problem, three = file["Ordinal"](), math.log(3)
    output, targets = torch.tensor([[three, -three], [0.0, math.log(4)]]), torch.tensor([1, 0])
    losses = [2 * math.log(4 / 3), math.log(2) + math.log(5)]
    assert problem.loss(output, targets, "none").tolist() == pytest.approx(losses)
    assert problem.loss(output, targets).item() == pytest.approx(sum(losses) / 2)
    assert problem.loss(output, targets, "sum").item() == pytest.approx(sum(losses))
    assert {name: v.tolist() for name, v in problem.scores(output, targets).items()} == {
        "accuracy": [1, 0],
        "class-distance": [0, 2],
    }
    scores, _ = problem.predicted(output, targets)
    assert scores.flatten().tolist() == pytest.approx([0.25, 0.5, 0.25, 0.5, 0, 0.5])
    metric = file["ClassError"](Predicted("classes", 3))
    assert metric.value(metric.batch(scores, targets)) == pytest.approx((1 + 0) / 2)


def test_the_ordinal_model_has_an_output_for_each_border(ran):
    model, config = ran("ordinal.py")
    assert model["4.weight"].shape[0] == 9
    assert config["shape"] == "shape:1x8x8:9"


def test_a_class_from_python_is_the_problem_of_the_file(cache_dir, tmp_path):
    """To the same bits; losses of classes do not fit it."""
    file = APP / "examples" / "ordinal.py"
    given = {"rounds": 1, "batch_size": 0, "backend": "inline", "cache_dir": cache_dir, "progress": False}
    of_file = simulate(problem=f"{file}:Ordinal", run_dir=tmp_path / "file", **given)
    of_class = simulate(problem=runpy.run_path(str(file))["Ordinal"], run_dir=tmp_path / "class", **given)
    files = [(result.folder / "model.safetensors").read_bytes() for result in (of_file, of_class)]
    assert files[0] == files[1]
    assert of_class.model(client=0)[4].out_features == 9
    with pytest.raises(UserError, match="needs classes, and problem .*Ordinal' has other outputs"):
        simulate(problem=f"{file}:Ordinal", loss="focal", **given)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("file", "name"), [("own_kind.py", "Laboratory"), ("own_data.py", "hospitals")])
def test_an_object_from_python_is_the_data_of_the_file(cache_dir, tmp_path, file, name):
    """To the same bits; a resumed run is given it again."""
    place = APP / "examples" / file
    given = {"rounds": 1, "batch_size": 0, "backend": "inline", "cache_dir": cache_dir, "progress": False}
    given |= {"partition": "natural:client", "num_clients": 3}
    own = runpy.run_path(str(place))[name]
    of_file = simulate(dataset=f"{place}:{name}", run_dir=tmp_path / "file", **given)
    of_object = simulate(dataset=own, run_dir=tmp_path / "object", **given)
    files = [(result.folder / "model.safetensors").read_bytes() for result in (of_file, of_object)]
    assert files[0] == files[1]
    assert of_object.summary["clients"]["2"]["name"] == "Vienna"
    assert uses_session_objects(json.loads((of_object.folder / "config.json").read_text()))
    again = {"resume": of_object.folder, "rounds": 2, "progress": False}
    with pytest.raises(UserError, match=f"dataset: '{name}@.*' was an object of another run's process"):
        simulate(**again)
    assert simulate(**again, dataset=own).history["round"].tolist() == [1, 2]


def test_hospitals_are_clients_by_their_names(ran):
    _, config = ran("own_data.py")
    assert config["client-names"] == ["Lyon", "Turin", "Vienna"]
    assert config["dataset"] == f"{APP / 'examples' / 'own_data.py'}:hospitals"
    dataset = inputs_of(run_config({"dataset": config["dataset"], "cache-dir": config["cache-dir"]})).dataset
    assert (len(dataset.train), len(dataset.test)) == (456, 113)
    assert np.abs(dataset.train.columns["x"].mean(0)).max() < 1e-6  # each hospital's are 0


@pytest.mark.slow
def test_laboratories_scale_by_their_quartiles(ran):
    """Each has median 0 and quartiles 1 apart in its training rows, whatever its units."""
    _, config = ran("own_kind.py")
    assert config["client-names"] == ["Lyon", "Turin", "Vienna"]
    keys = {name: config[name] for name in ("dataset", "cache-dir", "partition", "num-clients")}
    for client in range(3):
        task = local_task(run_config(keys), client, {})
        x, _ = task.train.prepared(np.arange(len(task.train)))
        quartiles = np.quantile(x.numpy(), (0.25, 0.5, 0.75), axis=0)
        np.testing.assert_allclose(quartiles[1], 0, atol=1e-5)
        np.testing.assert_allclose(quartiles[2] - quartiles[0], 1, atol=1e-4)
        assert len(task.evaluation["test"]) == 38 - (client == 2)


@pytest.mark.slow
def test_own_everything_from_python(cache_dir, tmp_path):
    """The rule's momentum, the heads that stay at home, and data that were learnt."""
    script = runpy.run_path(str(APP / "examples" / "python" / "own_everything.py"))
    common = {"backend": "inline", "cache_dir": cache_dir, "progress": False}
    result = script["run"](rounds=3, run_dir=tmp_path / "run", **common)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["beta"], config["eta"]) == (0.25, 0.5)
    heads = [result.model(client)[3].weight for client in (0, 1)]
    assert not heads[0].equal(heads[1])
    assert result.model(0)[1].weight.equal(result.model(1)[1].weight)
    first, _, last = result.history["accuracy"]
    assert last > max(first, 0.6)


def test_the_readmes_rule_runs_by_the_readmes_command(cache_dir, tmp_path, monkeypatch):
    readme = (APP / "README.md").read_text()
    (code,) = re.findall(r"```python\n# my_rules\.py\n(.*?)```", readme, re.DOTALL)
    (command,) = re.findall(r"^python run_sim\.py (--strategy my_rules\.py:.*)$", readme, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rules.py").write_text(code)
    given = (*shlex.split(command), "--rounds", "1", "--backend", "inline", "--cache-dir", str(cache_dir))
    assert main([*given, "--run-dir", "run"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["server-lr"], config["client"]) == (0.005, "silobn")
    before, after = start(config), load_file(tmp_path / "run" / "model.safetensors")
    moved = np.abs(after["4.weight"] - before["4.weight"])
    np.testing.assert_allclose(moved[moved > 0], 0.005, rtol=1e-3)


@pytest.mark.slow
def test_the_readmes_own_data_runs(cache_dir, tmp_path, monkeypatch):
    """On Ray, as it stands there."""
    (code,) = re.findall(
        r"```python\n([^`]*simulate\(data=.*?)```", (APP / "README.md").read_text(), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir))
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(400, 5)), rng.normal(size=(100, 5))
    given = {"x": x, "x_test": x_test, "y": (x[:, 0] > 0) * 1, "y_test": (x_test[:, 0] > 0) * 1}
    exec(code, given)
    assert given["result"].history["accuracy"].iloc[-1] > 0.8
