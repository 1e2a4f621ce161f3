"""Shared by the tests of the server: what is made of a run's cases in the end is another room's."""

import pytest

from fedbn_flower.annexes import is_present


@pytest.fixture(autouse=True)
def _no_intervals(monkeypatch):
    if is_present("study"):
        monkeypatch.setattr("fedbn_flower.study.intervals.write_intervals", lambda *_: None)
