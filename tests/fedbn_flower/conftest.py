"""Shared by the tests of the app."""

import pytest

from fedbn_flower import UserError, simulate
from fedbn_flower.annexes import is_present
from fedbn_flower.cli import main
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.results.plotting.svg_figure import InlineFigure
from fedbn_flower.runtime.simulation import simulate as simulated_in
from fedbn_flower.server.federation import Federation

from ..conftest import save_empty

SAVE = InlineFigure._save


@pytest.fixture
def sweeps_table():
    """The class of the table that a sweep writes."""
    return pytest.importorskip("fedbn_flower.sweeps.grid_table").Comparison


@pytest.fixture
def drawn_figures(monkeypatch):
    """What is drawn in this test is looked at."""
    monkeypatch.setattr(InlineFigure, "_save", SAVE)


NO_INTERVALS = {
    *("asynchronous", "attacks", "extensions", "lockstep", "models", "names", "privacy", "secagg", "server"),
    *("site", "trackers", "watch", "api", "apps", "exports", "search", "runtime", "job"),
}
"""Rooms in which nobody looks at what is made of a run's cases in the end."""


@pytest.fixture(scope="module", autouse=True)
def _only_what_is_looked_at(request, pictures_never_drawn, draws_always_few):
    """Tests of pictures look at figures, those of intervals have their own `draws_always_few`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InlineFigure, "_save", save_empty)
        if request.path.parent.name in NO_INTERVALS and is_present("study"):
            patch.setattr("fedbn_flower.study.intervals.write_intervals", lambda *_: None)
        yield


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
ONE_ROUND |= {"data", "own_data", "tables", "exports", "libraries"}
"""Rooms in which it is a run's end that is looked at."""
SMALL = {"local_epochs": 1, "batch_size": 256}


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
