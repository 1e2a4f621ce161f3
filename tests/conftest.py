"""Shared by all tests: no network, and no telemetry."""

import os
import signal

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "HF_HUB_OFFLINE": "1",
}
if "PYTEST_XDIST_WORKER" in os.environ:  # a core for each process: more threads only wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest
from hypothesis import settings

from fedbn_flower.config.run_config import RunConfig
from fedbn_flower.federation.inputs import inputs_of
from fedbn_flower.results import report
from fedbn_flower.results.plotting import plots

# The same examples in every run, however long one takes: no test depends on chance or load.
settings.register_profile("fedbn", deadline=None, derandomize=True, database=None)
settings.load_profile("fedbn")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """One folder of decoded datasets for the session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def pictures_not_drawn(monkeypatch):
    """They are half of a small run's time."""
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: path.touch())
    monkeypatch.setattr(report, "write_report", lambda folder: folder / report.NAME)


@pytest.fixture(scope="session")
def write_site():
    """Writes a client's share of a simulation as a site's own folder."""

    def write(config, partition, folder):
        dataset, partitions = inputs_of(config).dataset, inputs_of(config).partitions
        rows = partitions.train[partition]
        folder.mkdir()
        np.save(folder / "train-images.npy", dataset.train.columns["x"][rows])
        np.save(folder / "train-labels.npy", dataset.train.columns["y"][rows])
        np.save(folder / "test-images.npy", dataset.test.columns["x"])
        np.save(folder / "test-labels.npy", dataset.test.columns["y"])

    return write


@pytest.fixture
def configured(cache_dir):
    """A configuration by keys with underscores; small unless told otherwise."""

    def make(**values):
        given = {"rounds": 2, "cache_dir": str(cache_dir), "backend": "inline"} | values
        return RunConfig.of({key.replace("_", "-"): value for key, value in given.items()})

    return make
