"""Shared by all tests: no network, and no telemetry."""

import os

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "HF_HUB_OFFLINE": "1",
}

import pytest

from fedbn_flower.config import RunConfig


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """One folder of decoded datasets for the session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def configured(cache_dir):
    """A configuration by keys with underscores; small unless told otherwise."""

    def make(**values):
        given = {"rounds": 2, "cache_dir": str(cache_dir), "backend": "inline"} | values
        return RunConfig.of({key.replace("_", "-"): value for key, value in given.items()})

    return make
