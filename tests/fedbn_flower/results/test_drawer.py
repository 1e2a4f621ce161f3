"""Figures are the same, whichever process draws them."""

import os

import pytest

from fedbn_flower.config.making import run_config
from fedbn_flower.results import report, run_folder
from fedbn_flower.results.plotting import drawer, plots
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

FIGURES = ("report.html", "curves.png", "partitions.png")


@pytest.fixture(scope="module")
def _only_what_is_looked_at():
    """Figures are, in this module."""


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def run(folder, cache_dir):
    values = {"rounds": 1, "batch-size": 240, "backend": "inline", "cache-dir": str(cache_dir)}
    simulate(Federation(run_config(values)), folder, None)


def refuse(*_):
    raise AssertionError("drawn in this process")


@pytest.mark.slow
def test_a_runs_figures_are_those_that_its_own_process_draws(tmp_path, cache_dir, monkeypatch):
    with drawer.drawing_apart(), monkeypatch.context() as patch:
        patch.setattr(drawer.Job, "done", refuse)
        patch.setattr(plots, "save_figure", refuse)
        run(tmp_path / "run", cache_dir)
    apart = {name: (tmp_path / "run" / name).read_bytes() for name in FIGURES}
    assert apart["report.html"].count(b"<svg") >= 5
    plots.plot_curves(tmp_path / "run")
    report.write_report(tmp_path / "run")
    monkeypatch.setattr(run_folder, "plot_curves", lambda folder: None)
    monkeypatch.setattr(report, "write_report", lambda folder: folder / "report.html")
    run(tmp_path / "here", cache_dir)
    (tmp_path / "run" / "partitions.png").write_bytes((tmp_path / "here" / "partitions.png").read_bytes())
    assert {name: (tmp_path / "run" / name).read_bytes() for name in FIGURES} == apart


def titled(title):
    """A figure with nothing but a title."""
    figure = plots.new_figure(2, 2)
    figure.subplots().set_title(title)
    return figure


@pytest.mark.slow
def test_what_the_process_cannot_draw_is_drawn_here(tmp_path):
    """A mistake is raised here; there is no figure where a function returns none."""
    with drawer.drawing_apart():
        process = drawer.DRAWER.get().process
        assert not drawer.drawn(os.getenv, "NO_SUCH_VARIABLE")
        with pytest.raises(FileNotFoundError):
            drawer.drawn(os.listdir, str(tmp_path / "none")).as_svg("name")
        assert drawer.drawn(lambda: titled("of no module"))
        process.kill()
        process.wait()
        figure = drawer.drawn(titled, "of a process that was killed")
        assert 'id="name-' in figure.as_svg("name")
        assert drawer.begun(tmp_path / "a.png", titled, "the same")
        drawer.finish_files()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def interrupted(path):
    with drawer.drawing_apart():
        drawer.begun(path, titled, "nobody waits for it")
        raise KeyboardInterrupt(drawer.DRAWER.get().process)


def test_the_process_ends_with_the_run(tmp_path):
    with pytest.raises(KeyboardInterrupt) as ended:
        interrupted(tmp_path / "a.png")
    assert ended.value.args[0].returncode is not None
    assert drawer.DRAWER.get() is None


def test_a_machine_with_one_core_has_no_drawing_process(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with drawer.drawing_apart():
        assert drawer.DRAWER.get() is None


def test_where_no_process_starts_figures_are_drawn_here(monkeypatch):
    monkeypatch.setattr(drawer.sys, "executable", "/nowhere/python")
    with drawer.drawing_apart():
        assert drawer.DRAWER.get() is None
        assert 'id="name-' in drawer.drawn(titled, "here").as_svg("name")
