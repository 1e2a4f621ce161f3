"""What tests of data read with."""

import pytest

from fedbn_flower.data import Request, load_dataset


@pytest.fixture
def run(run):
    """The same, of one round unless told otherwise: what is read is seen in the first."""
    return lambda **keys: run(**({} if "resume" in keys else {"rounds": 1}) | keys)


@pytest.fixture
def digits(cache_dir):
    return load_dataset(Request("digits"), cache_dir)
