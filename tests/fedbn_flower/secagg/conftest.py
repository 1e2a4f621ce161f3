"""Shared by the tests of secure aggregation."""

import pytest

from .grids import Lossy, run_on
from .keyed import node_configs

KEYS = {
    "clip_update_norm": 1.0, "partition": "iid", "num_clients": 5, "rounds": 1, "model": "linear",
    "client": "shared",
}  # fmt: skip


@pytest.fixture(scope="session")
def settings(configured):
    def made(mode, **values):
        threshold = {"secagg_threshold": 3} if mode == "on" else {}
        return configured(**{**KEYS, "secagg": mode, **threshold, **values})

    return made


@pytest.fixture(scope="session")
def plain_model(settings):
    """The model of a round with plain sums, by who is lost in training; each is made once."""
    found = {}

    def model(*lost):
        if lost not in found:
            plain = settings("plain")
            found[lost] = run_on(plain, Lossy(plain, {"train": lost}))[1]
        return found[lost]

    return model


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """The node configs of five sites with keys of their own."""
    return node_configs(tmp_path_factory.mktemp("keys"), 5)
