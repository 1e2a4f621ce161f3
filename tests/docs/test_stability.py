"""docs/stability.md: what it says stays is there, and what is gone says what replaces it."""

import json
import zipfile
from importlib import import_module

import pytest

from fedbn_flower.config.named_algorithms import keys_for_flower
from fedbn_flower.core.ground import wire

from ..fedbn_flower.results.test_saved_by_0_2_0 import SAVED

OF_THE_RUN = {"client-names", "data", "shape", "versions"}


def test_every_key_of_the_version_before_is_known():
    """Also those that are gone (test_gone.py)."""
    with zipfile.ZipFile(SAVED) as saved:
        keys = json.loads(saved.read("run/config.json")).keys()
    assert keys - keys_for_flower().keys() == OF_THE_RUN


@pytest.mark.parametrize("package", ["fedbn_flower", "fedbn_flower.strategies", "fedbn_flower.clients"])
def test_what_a_package_exports_is_there(package):
    module = import_module(package)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


def test_a_client_of_ones_own_reads_and_writes_these():
    names = (wire.ARRAYS, wire.CONFIG, wire.METRICS, wire.SERVER_ROUND, wire.NUM_EXAMPLES)
    assert names == ("arrays", "config", "metrics", "server-round", "num-examples")
