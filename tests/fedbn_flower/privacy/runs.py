"""Small runs of each notion of privacy, and what of them is compared."""

import json

import pytest

from fedbn_flower.config.making import run_config
from fedbn_flower.privacy import ledger
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.recorded_run import recorded_run
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from tests.fedbn_flower.records.helpers import Stops

DP = {"dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3, "dp_seed": 5}
MANY = {"num_clients": 20, "partition": "iid", "fraction_train": 0.5, "fraction_evaluate": 0.1}
LINEAR = {"model": "linear", "client": "shared"}
FEW = MANY | LINEAR | {"num_clients": 10}
SMALL = {"partition": "iid", "batch_size": 240, "local_epochs": 1, **LINEAR}
NOTIONS = {
    "client": {**MANY, **DP},
    "local": {**SMALL, **DP, "dp": "local", "dp_noise": 2.0, "num_clients": 4, "rounds": 2},
    "example": {**SMALL, **DP, "dp": "example", "num_clients": 3},
}


def private(configured, notion, **values):
    return configured(**{**NOTIONS[notion], **values})


def charges(folder):
    return [json.loads(line) for line in (folder / ledger.NAME).read_text().splitlines()[1:]]


def model(folder):
    return (folder / "model.safetensors").read_bytes()


def simulated(config, folder, pool=None):
    return simulate(Federation(config), folder, pool).as_json()


def run_on(grid, config, folder, observers=(), checkpoint=None):
    """The summary of a run on a grid."""
    folder.mkdir(exist_ok=True)
    federation = Federation(config)
    results = RunFolder(folder, federation, grid.client_memory, checkpoint)
    return recorded_run(federation, grid, results, observers, checkpoint).as_json()


def resume(config, folder, **changed):
    values = {**config.to_user_config(), "resume": str(folder), "run-dir": str(folder), **changed}
    return run_config(values)


def cut(config, folder, after):
    """Simulate a run that is killed after a round."""
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), folder, None, [Stops(after)])


def of_local(configured, **values):
    return private(configured, "local", **values)


def of_examples(configured, **values):
    return private(configured, "example", **values)
