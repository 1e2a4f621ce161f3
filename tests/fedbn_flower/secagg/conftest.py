"""Shared by the tests of secure aggregation."""

import pytest

from .keyed import node_configs

KEYS = {"clip_update_norm": 1.0, "partition": "iid", "num_clients": 5, "rounds": 1}


@pytest.fixture
def settings(configured):
    def made(mode, **values):
        threshold = {"secagg_threshold": 3} if mode == "on" else {}
        return configured(**{**KEYS, "secagg": mode, **threshold, **values})

    return made


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """The node configs of five sites with keys of their own."""
    return node_configs(tmp_path_factory.mktemp("keys"), 5)
