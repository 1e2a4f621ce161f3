"""The ServerApp without any SuperLink."""

import socket

import pytest
from flwr.app import Context, RecordDict

from fedbn_flower.core.errors import RunCutOff
from fedbn_flower.runtime import server_app


def test_a_superlink_that_no_longer_answers_ends_the_server(monkeypatch, tmp_path, cache_dir):
    """Flower's own grid, which would ask for ever."""
    from flwr.superlink.grid import HttpGrid  # late: its database is half a second that no other test needs

    monkeypatch.setattr(server_app, "LOST", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    grid = HttpGrid(address, insecure=True, token="any")
    config = {"cache-dir": str(cache_dir), "run-dir": str(tmp_path / "run")}
    with pytest.raises(RunCutOff, match="the SuperLink is lost .*refused.*; go on with the key resume"):
        server_app.main(grid, Context(0, 0, {}, RecordDict(), config))
