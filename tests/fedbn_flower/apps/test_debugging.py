"""Where an app runs under a debugger."""

import sys

import pytest

pytest.importorskip("fedbn_flower.runtime.ray")

from fedbn_flower import run_app
from fedbn_flower.apps.run import DEBUGGERS, is_debugged
from fedbn_flower.runtime.ray import auto_grid
from fedbn_flower.runtime.ray.background import BackgroundPool

from .written import write_app


def test_a_debugger_is_seen(monkeypatch):
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    for name in DEBUGGERS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert not is_debugged()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "gettrace", lambda: print)
        assert is_debugged()
    monkeypatch.setitem(sys.modules, "debugpy", object())
    assert is_debugged()


def test_a_run_that_met_a_breakpoint_stays_in_its_process(tmp_path, monkeypatch):
    """The first round takes long, but at a prompt."""
    monkeypatch.setattr(auto_grid, "START", 0.0)
    monkeypatch.setattr(auto_grid, "WARM_UP", 0.0)
    folder, begun, started = write_app(tmp_path / "app"), [], []
    with monkeypatch.context() as patch:
        patch.setattr("fedbn_flower.apps.run.is_debugged", lambda: True)
        patch.setattr("fedbn_flower.apps.run.pool_for", started.append)
        run_app(folder)
    assert [settings.backend for settings in started] == ["inline"]  # as in a debugger from the start
    monkeypatch.setattr("fedbn_flower.apps.run.is_debugged", lambda: False)
    monkeypatch.setattr(
        BackgroundPool, "start", lambda pool, why: begun.append(1) or pool.give_up(OSError("no"))
    )
    monkeypatch.delitem(sys.modules, "pdb", raising=False)
    assert run_app(folder).place == {"backend": "inline"}
    assert begun
    begun.clear()
    client = folder / "small_app" / "client_app.py"
    text = client.read_text().replace("    metrics", "    sys.modules['pdb'] = sys\n    metrics")
    client.write_text(f"import sys\n{text}")
    run_app(folder)
    assert not begun
