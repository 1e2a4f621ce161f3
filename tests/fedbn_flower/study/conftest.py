"""What is studied are the cases of a run's last round."""

import pytest


@pytest.fixture
def run(run):
    """The same, of one round unless told otherwise."""
    return lambda **keys: run(**({} if "resume" in keys else {"rounds": 1}) | keys)
