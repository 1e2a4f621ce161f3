"""Apps of two functions."""

import pytest
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedbn_flower import run_app

from .written import echo


@pytest.fixture
def run(tmp_path):
    """Runs a ServerApp's main function with a ClientApp, or a function that answers messages to train."""

    def run(main, client=None, nodes=3, **settings):
        server = ServerApp()
        server.main()(main)
        if client and not isinstance(client, ClientApp):
            train, client = client, ClientApp()
            client.train()(train)
        given = {"backend": "inline", "run_dir": tmp_path / "run", "progress": False}
        return run_app(server, client or echo(), num_supernodes=nodes, **given | settings)

    return run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """The default folder of a run is below the current one."""
    monkeypatch.chdir(tmp_path)
