"""Shared by the tests of secure aggregation."""

import pytest

KEYS = {"clip_update_norm": 1.0, "partition": "iid", "num_clients": 5, "rounds": 1}


@pytest.fixture
def settings(configured):
    def made(mode, **values):
        threshold = {"secagg_threshold": 3} if mode == "on" else {}
        return configured(**{**KEYS, "secagg": mode, **threshold, **values})

    return made
