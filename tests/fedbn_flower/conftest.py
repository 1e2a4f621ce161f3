"""Shared by the tests of the app."""

import pytest

from fedbn_flower import UserError, simulate
from fedbn_flower.annexes import is_present
from fedbn_flower.cli import main
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.runtime.simulation import simulate as simulated_in
from fedbn_flower.server.federation import Federation


@pytest.fixture(autouse=True)
def _pictures_are_not_drawn(pictures_not_drawn):
    """Tests of pictures look at their figures; slow tests draw them."""


@pytest.fixture(autouse=True)
def _figures_of_pages_are_empty(request):
    """Tests of what is drawn use ``drawn_figures``."""
    if "drawn_figures" not in request.fixturenames:
        request.getfixturevalue("empty_figures")


@pytest.fixture
def sweeps_table():
    """The class of the table that a sweep writes."""
    return pytest.importorskip("fedbn_flower.sweeps.grid_table").Comparison


@pytest.fixture
def drawn_figures():
    """What is drawn in this test is looked at."""


@pytest.fixture(autouse=True)
def _intervals_are_of_few_draws(few_draws):
    """Tests of intervals have their own ``few_draws``."""


NO_INTERVALS = {
    *("asynchronous", "attacks", "extensions", "lockstep", "models", "names", "privacy", "secagg", "server"),
    *("site", "trackers", "watch", "api", "apps", "exports", "search", "runtime", "job"),
}
"""Rooms in which nobody looks at what is made of a run's cases in the end."""


@pytest.fixture(autouse=True)
def _no_intervals_where_nobody_looks(request, monkeypatch):
    if request.path.parent.name in NO_INTERVALS and is_present("study"):
        monkeypatch.setattr("fedbn_flower.study.intervals.write_intervals", lambda *_: None)


@pytest.fixture
def refused(capsys):
    """The line with which a command is refused, before anything is printed."""

    def line_of(*words):
        assert main([str(word) for word in words]) == 2
        printed = capsys.readouterr()
        (line,) = printed.err.splitlines()
        assert printed.out == ""
        return line.removeprefix("error: ")

    return line_of


ONE_ROUND = {"api", "results", "study", "comparisons", "statistics", "attacks", "models"}
"""Rooms in which it is a run's end that is looked at."""
SMALL = {"local_epochs": 1, "batch_size": 128}


@pytest.fixture
def run(cache_dir, tmp_path, monkeypatch, request):
    """`simulate` in this process, in an empty folder; small unless told otherwise."""
    monkeypatch.chdir(tmp_path)
    rounds = {"rounds": 1 if request.path.parent.name in ONE_ROUND else 2}

    def simulated(**keys):
        small = (
            {"rounds": 2}
            if "resume" in keys
            else {**SMALL, **rounds, **({} if "data" in keys else {"dataset": "digits"})}
        )
        return simulate(**small | {"cache_dir": cache_dir, "backend": "inline", "progress": False} | keys)

    return simulated


@pytest.fixture
def refusal(configured):
    """The line with which a configuration is refused before anything starts."""

    def line(**keys):
        with pytest.raises(UserError) as caught:
            Federation(configured(**keys))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return line


@pytest.fixture
def finished(configured):
    """What the summary of a run in this process says; the run is in the folder."""
    return lambda folder, **keys: simulated_in(Federation(configured(**keys)), folder, None).as_json()


@pytest.fixture
def load(cache_dir):
    """Read a dataset as a run with these keys does, from the cache on disk at most."""

    def read(name, **keys):
        clear_process_caches()
        return load_dataset(Request(str(name), **keys), cache_dir)

    return read
