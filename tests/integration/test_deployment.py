"""docs/deployment.md, command by command: a real SuperLink and SuperNodes, and what happens when one dies."""

import os
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from deploy.local_federation import wait_until_answers
from fedbn_flower.config import RunConfig
from fedbn_flower.federation import Federation
from fedbn_flower.runtime import InlineGrid
from fedbn_flower.runtime.grid import partition_of
from fedbn_flower.task import dataset_of, partitions_of

from .guide import SITES, Guide
from .test_runtimes import end

pytestmark = pytest.mark.slow

SILOS = {"dataset": "digits", "partition": "silos:0-4,5-9", "num-clients": 2}


@pytest.fixture(scope="module")
def supervised():
    """Restarts what died, as systemd would, until the module's tests are done."""
    services, over = {}, threading.Event()

    def watch():
        while not over.wait(0.5):
            for service in list(services.values()):
                service.supervise()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield services
    over.set()
    watcher.join()


@pytest.fixture(scope="module")
def hospital(tmp_path_factory, cache_dir, supervised):
    """The federation of the guide, up to where the sites have started. Each site has its silo of the digits."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    os.environ["FEDBN_TEST"] = mark
    try:
        with Guide(tmp_path_factory.mktemp("guide"), services=supervised) as guide:
            guide.run("superlink", "superlink")
            wait_until_answers(guide.port)
            wait_until_answers(guide.open_port)
            config = RunConfig.of({**SILOS, "cache-dir": str(cache_dir)})
            dataset, partitions = dataset_of(config), partitions_of(config)
            user = guide.folder / "user"
            shutil.copy(guide.folder / "superlink/etc/fedbn/ca.crt", user)
            for partition, site in enumerate(SITES):
                data = guide.folder / site / "srv/fedbn"
                data.mkdir()
                rows = partitions.train[partition]
                np.save(data / "train-images.npy", dataset.train.images[rows])
                np.save(data / "train-labels.npy", dataset.train.labels[rows])
                np.save(data / "test-images.npy", dataset.test.images)
                np.save(data / "test-labels.npy", dataset.test.labels)
                place = guide.folder / site / "fedbn-flower"
                shutil.copy(user / "ca.crt", place)
                guide.run("site", site)
                shutil.copy(place / "site.key.pub", user / "fedbn-flower" / f"{site}.key.pub")
            guide.run("user register", "user")
            for site in SITES:
                guide.run("site start", site)
            yield guide
    finally:
        del os.environ["FEDBN_TEST"]
        end(f"FEDBN_TEST={mark}")


class Missing(InlineGrid):
    """A simulation in which some clients do not answer some train messages: {(round, partition)}."""

    def __init__(self, config, missing):
        super().__init__(config.num_clients, config.to_user_config())
        self.missing = missing

    def work(self, messages, timeout):
        for message in messages:
            facts = message.content.config_records.get("config", {})
            training = message.metadata.message_type == "train"
            if not (training and (facts["server-round"], partition_of(message)) in self.missing):
                yield from super().work([message], timeout)


def simulated(cache_dir, rounds, missing=()):
    """The shared model of a simulation of the two silos."""
    config = RunConfig.of({**SILOS, "rounds": rounds, "cache-dir": str(cache_dir), "fraction-evaluate": 0})
    arrays = Federation(config).run(Missing(config, set(missing)), [])
    return {name: array.numpy().tobytes() for name, array in arrays.items()}


def results(guide, name):
    return guide.folder / "superlink/var/lib/fedbn/runs" / name


def model(folder):
    return {name: a.tobytes() for name, a in load_file(folder / "model.safetensors").items()}


def rounds_done(folder):
    metrics = folder / "metrics.csv"
    return metrics.read_text().count("\n") - 1 if metrics.exists() else 0


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def start_run(guide, name, **keys):
    """``flwr run`` in the background, with the guide's configuration but for some keys."""
    place = guide.folder / "user/fedbn-flower"
    lines = (place / "experiment.toml").read_text().splitlines()
    old = {line.split(" = ")[0]: line.split(" = ")[1] for line in lines}
    keys = {
        "run-dir": f'"{results(guide, name)}"',
        "experiment": f'"{name}"',
        "fraction-evaluate": "0.0",
    } | keys
    text = "".join(f"{key} = {value}\n" for key, value in (old | keys).items() if value is not None)
    (place / f"{name}.toml").write_text(text)
    command = ["flwr", "run", ".", "hospital", "--stream", "--run-config", f"{name}.toml"]
    return subprocess.Popen(
        command, cwd=place, env=guide.environment("user"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def test_the_guide_from_nothing_to_the_model_of_a_simulation(hospital, cache_dir):
    """TLS, authentication, two sites with data of their own, FedBN and FedYogi: bit for bit."""
    listed = hospital.run("user run", "user")
    assert model(results(hospital, "first")) == simulated(cache_dir, 3), listed
    hospital.run("user resume", "user")
    assert rounds_done(results(hospital, "first")) == 4
    assert model(results(hospital, "first")) == simulated(cache_dir, 4)
