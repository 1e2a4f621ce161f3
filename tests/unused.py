"""Keys that nothing reads, as far as it is known without data."""

from contextlib import suppress
from types import SimpleNamespace

from fedbn_flower.job.checks.unused_keys import UNREAD, given_keys

OF_LAYERS = "norm"
"""Whose condition reads the data of another configuration."""


def unused_without_data(config, caller):
    """The given keys that nothing in a run reads, whatever its data."""
    found = set()
    for (keys, _), holds in UNREAD.items():
        with suppress(AttributeError):  # it needs the data
            if keys != OF_LAYERS and holds(SimpleNamespace(config=config), caller):
                found |= {*keys.split()}
    return found & {*given_keys(config, caller)}
