"""What tests of data read with."""

import pytest

from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import Request, load_dataset


@pytest.fixture
def load(cache_dir):
    """Read a dataset as a run with these keys does, from the cache on disk at most."""

    def read(name, **keys):
        clear_process_caches()
        return load_dataset(Request(str(name), **keys), cache_dir)

    return read


@pytest.fixture
def run(run):
    """The same, of one round unless told otherwise: what is read is seen in the first."""
    return lambda **keys: run(**({} if "resume" in keys else {"rounds": 1}) | keys)


@pytest.fixture
def digits(cache_dir):
    return load_dataset(Request("digits"), cache_dir)
