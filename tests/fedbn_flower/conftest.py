"""Shared by the tests of the app."""

import pytest

from fedbn_flower import simulate
from fedbn_flower.results import plots, report


@pytest.fixture(autouse=True)
def _pictures_are_not_drawn(monkeypatch):
    """They are half of a small run's time. Tests of pictures look at their figures; slow tests draw them."""
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: path.touch())
    monkeypatch.setattr(report, "write_report", lambda folder: folder / report.NAME)


@pytest.fixture
def run(cache_dir, tmp_path, monkeypatch):
    """`simulate` in this process, in an empty folder; small unless told otherwise."""
    monkeypatch.chdir(tmp_path)

    def simulated(**keys):
        return simulate(
            **{"rounds": 2, "cache_dir": cache_dir, "backend": "inline", "progress": False} | keys
        )

    return simulated
