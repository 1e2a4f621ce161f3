"""From Python: every key, or one's own objects."""

import doctest
import importlib
import inspect
import json
import logging
import shutil
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import fedbn_flower
from clients import FedBNClient
from fedbn_flower import RunFailed, UserError, simulate
from fedbn_flower.cli import main
from fedbn_flower.config.keys import RUN_KEYS, SECTIONS
from fedbn_flower.config.making import run_config
from fedbn_flower.core.session_objects import session_objects
from fedbn_flower.data.readers.arrays import arrays_by_name, keep_arrays
from fedbn_flower.job.inputs import inputs_of
from strategies import FedAvg, FedYogi

from ..refusal import one_line
from . import own_objects
from .own_objects import Fixed, KeepsBiases, Pull, Scaled, thin


def bits(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "scaffold", "objective": "scaffold", "client_lr_schedule": "exponential:0.9", "seed": 3},
        {"tau": 1e-4, "bias_correction": False, "partition": "dirichlet:0.5", "num_clients": 5},
    ],
)
def test_the_command_line_gives_the_same_files(run, keys, cache_dir, tmp_path):
    result = run(**keys, rounds=2, run_dir=tmp_path / "python")
    flags = [w for k, v in keys.items() for w in (f"--{k.replace('_', '-')}", str(v).lower())]
    given = "--dataset digits --rounds 2 --local-epochs 1 --batch-size 256 --backend inline --run-dir command"
    assert main([*flags, *given.split(), "--cache-dir", str(cache_dir)]) == 0
    assert bits(result.folder) == bits(tmp_path / "command")
    assert (result.folder / "clients.csv").read_bytes() == (tmp_path / "command" / "clients.csv").read_bytes()
    configs = [json.loads((tmp_path / n / "config.json").read_text()) for n in ("python", "command")]
    assert {key for key, value in configs[0].items() if configs[1][key] != value} == {"run-dir"}


def test_own_objects_do_what_the_same_code_in_a_file_does(run, tmp_path):
    """Each object does something: with any one left out the model is another."""
    shutil.copy(own_objects.__file__, tmp_path / "own.py")
    own = {"strategy": Scaled, "client": KeepsBiases, "objective": Pull, "model": thin}
    names = {key: f"own.py:{value.__name__}" for key, value in own.items()}
    settings = {"scale": 0.5, "pull": 0.25, "rounds": 1}
    expected = bits(run(**names, **settings).folder)
    assert bits(run(**own, **settings).folder) == expected
    for keys in (("strategy", "client"), ("objective", "model")):
        mixed = own | {key: names[key] for key in keys}
        assert bits(run(**mixed, **settings).folder) == expected
    assert bits(run(**own, **settings | {"pull": 0.1}).folder) != expected
    assert not session_objects()


def test_an_instance_stands_for_its_class_with_its_settings(run):
    """Silos of 721 and 716 examples: weighting tells."""
    run = partial(run, rounds=1)
    expected = bits(run(strategy=Scaled, scale=0.5, weighting="uniform", seed=4).folder)
    assert bits(run(strategy=Scaled(scale=0.5, weighted_by_key=None, seed=4)).folder) == expected
    assert bits(run(strategy=Scaled(scale=0.5), weighting="uniform", seed=4).folder) == expected
    assert bits(run(strategy=Scaled(scale=0.5), seed=4).folder) != expected


def test_a_built_in_class_is_what_its_name_says(run):
    result = run(strategy=FedYogi(eta=0.02), client=FedBNClient)
    config = json.loads((result.folder / "config.json").read_text())
    assert (config["strategy"], config["client"], config["server-lr"]) == ("fedyogi", "fedbn", 0.02)


@pytest.mark.slow
def test_what_is_defined_anew_is_used_anew(run):
    """In a notebook a cell is run again; nothing of the first definition is found by its name."""
    sizes = []
    for hidden in (3, 5):

        def net(spec, hidden=hidden):
            return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, hidden), nn.Linear(hidden, spec.classes))

        result = run(model=net, rounds=1, client="shared")
        sizes.append(len(load_file(result.folder / "model.safetensors")["1.bias"]))
        assert result.model()[1].out_features == hidden
    assert sizes == [3, 5]


def test_a_model_that_needs_no_shape_is_called_without(run):
    assert run(model=Fixed, rounds=1).model(client=1).layers[1].out_features == 8


def test_a_run_goes_on_with_its_objects_given_again(run, tmp_path):
    own = {"strategy": Scaled, "client": KeepsBiases}
    whole = run(**own, rounds=2, scale=0.5)
    part = run(**own, rounds=1, scale=0.5, run_dir="part")
    with pytest.raises(UserError, match="strategy: 'Scaled@.*' was an object of another run's process"):
        simulate(resume=part.folder, rounds=2, progress=False)
    with pytest.raises(UserError, match="model: 'thin@.*' is not allowed; expected with resume only"):
        simulate(resume=part.folder, rounds=2, model=thin, progress=False)
    resumed = simulate(resume=part.folder, rounds=2, **own, progress=False)
    assert bits(resumed.folder) == bits(whole.folder)
    assert resumed.history["round"].tolist() == [1, 2]


@pytest.mark.slow
def test_arrays_are_the_same_files_in_a_folder(run, cache_dir, tmp_path):
    dataset = inputs_of(run_config({"dataset": "digits", "cache-dir": str(cache_dir)})).dataset
    splits = {"train": dataset.train, "test": dataset.test}
    (tmp_path / "files").mkdir()
    for name, split in splits.items():
        np.save(tmp_path / "files" / f"{name}-images.npy", split.columns["x"])
        np.save(tmp_path / "files" / f"{name}-labels.npy", split.columns["y"])
    run = partial(run, rounds=1)
    expected = run(dataset=tmp_path / "files", normalize=True, partition="iid")
    x, y = np.array(dataset.train.columns["x"]), dataset.train.columns["y"]
    x_test, y_test = np.array(dataset.test.columns["x"]), dataset.test.columns["y"]
    for data in (
        (x, y, x_test, y_test),
        (x[:, 0], y.astype(np.uint8), x_test[:, 0], y_test.astype(np.uint8)),
    ):
        result = run(data=data, normalize=True)
        assert bits(result.folder) == bits(expected.folder)
        assert result.summary["clients"] == expected.summary["clients"]
    changed = x.copy()
    changed[0] = 255 - changed[0]
    assert bits(run(data=(changed, y, x_test, y_test), normalize=True).folder) != bits(expected.folder)


def test_other_arrays_have_another_name(tmp_path):
    x, y = np.arange(96, dtype=np.uint8).reshape(6, 4, 4), np.arange(6)
    given = [(x, y), (x.reshape(6, 2, 8), y), (x.reshape(6, 1, 2, 8), y), (x, y[::-1]), (255 - x, y)]
    names = [keep_arrays(tmp_path, arrays_by_name((*split, *split))) for split in given]
    assert names[1] == names[2]
    assert len(set(names)) == 4


X, Y = np.zeros((6, 4, 4), np.uint8), np.arange(6)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"strategy": KeepsBiases}, "strategy: the class KeepsBiases is not allowed; expected a subclass of"),
        ({"client": Scaled()}, "client: an object of type Scaled is not allowed; expected a subclass of"),
        ({"model": Fixed()}, "model: a module itself is not allowed; expected a function that makes a Fixed"),
        ({"model": lambda: 3}, "expected a function that returns an nn.Module, not 3"),
        ({"strategy": Scaled, "scale": 3}, "scale: 3 is not allowed; expected a number in (0, 2]"),
        ({"strategy": Scaled(scale=0.5), "scale": 0.5}, "scale: given twice, the second time in the str"),
        ({"strategy": FedAvg(fraction_train=0.5), "fraction_train": 1.0}, "fraction-train: given twice"),
        ({"strategy": FedAvg(min_train_nodes=7)}, "strategy: a run has no key for min_train_nodes=7"),
        ({"strategy": FedYogi(eta_l=0.5)}, "strategy: a run has no key for eta_l=0.5"),
        ({"rounds": [1, 2]}, "rounds: [1, 2] is not allowed; expected a whole number >= 1"),
        ({"rouds": 1}, "unknown name 'rouds' (did you mean 'rounds'?)"),
        ({"data": (X, Y, X, Y), "dataset": "digits"}, "dataset: given twice, the second time as data"),
        ({"data": (X, Y[:5], X, Y)}, "data: y is int64 (5,); expected 6 class numbers >= 0"),
    ],
)
def test_a_mistake_is_an_exception_of_one_line(run, tmp_path, keys, words):
    with one_line(words):
        run(**keys)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fails_says_where_its_files_are(run):
    with pytest.raises(RunFailed, match="every client failed in every round") as caught:
        run(client_lr=1e30, run_dir="failed")
    assert caught.value.__notes__ == ["results so far are in failed"]


def test_the_caller_s_process_stays_as_it_was(run):
    before = torch.get_num_threads()
    logging.getLogger("flwr").setLevel(logging.DEBUG)
    torch.set_num_threads(2)
    try:
        run(rounds=1)
        assert torch.get_num_threads() == 2
        assert logging.getLogger("flwr").level == logging.DEBUG
    finally:
        torch.set_num_threads(before)


def test_workers_are_ended_when_a_run_fails(run, monkeypatch):
    closed, module = [], importlib.import_module(simulate.__module__)
    monkeypatch.setattr(module, "pool_for", lambda _: SimpleNamespace(close=lambda: closed.append(1)))
    monkeypatch.setattr(module.simulation, "simulate", Mock(side_effect=RunFailed("no answers")))
    with pytest.raises(RunFailed, match="^no answers"):
        run()
    assert closed == [1]


def test_the_package_lists_what_it_has_and_names_what_it_has_not():
    """What an import of it imports: `test_cli`."""
    assert {"simulate", "load_model", "Result", "UserError", "RunFailed"} <= {*dir(fedbn_flower)}
    with pytest.raises(AttributeError, match="^module 'fedbn_flower' has no attribute 'simulat'$"):
        fedbn_flower.simulat


@pytest.mark.slow
def test_the_example_in_its_help_runs(tmp_path, monkeypatch, cache_dir, pictures_not_drawn):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir))
    (example,) = doctest.DocTestFinder().find(simulate, globs={})
    assert doctest.DocTestRunner().run(example) == (0, 5)


def test_its_help_has_every_key_under_its_group():
    text = inspect.getdoc(simulate).partition("\nKeys\n----\n")[2]
    named = [line.strip() for line in text.splitlines() if not line.startswith(" " * 8)]
    own = [
        [f"{title}:", *(f"{key.replace('-', '_')}={field.default!r}" for key, field in keys.items())]
        for title, keys in SECTIONS.items()
    ]
    assert named[: len(RUN_KEYS) + len(SECTIONS)] == [line for lines in own for line in lines]
    assert "mean='weighted'" in named  # a setting that every strategy has
    assert "        passes each client makes over its examples in a round; a whole number >= 1\n" in text
