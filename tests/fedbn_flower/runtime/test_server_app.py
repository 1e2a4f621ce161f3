"""The ServerApp without any SuperLink."""

import socket
import subprocess
import sys

import pytest
from flwr.app import Context, RecordDict

from fedbn_flower.core.errors import RunCutOff
from fedbn_flower.runtime import server_app


@pytest.mark.slow
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


DOORS = """
import builtins, sys

half, plain = [], builtins.__import__

def spy(name, globals=None, locals=None, fromlist=(), level=0):
    module = plain(name, globals, locals, fromlist, level)
    importer = (globals or {}).get("__name__", "")
    for found in (module, *(sys.modules.get(f"{module.__name__}.{one}") for one in fromlist or ())):
        unfinished = getattr(getattr(found, "__spec__", None), "_initializing", False)
        ours = found and found.__name__.startswith("fedbn_flower") and not importer.startswith(found.__name__)
        if ours and unfinished:
            half.append((importer, found.__name__))
    return module

builtins.__import__ = spy
import fedbn_flower.client_app, fedbn_flower.core.partition_id
heavy = {"torch", *map("fedbn_flower.{}".format, ("clients", "config", "names"))}
assert not heavy & {*sys.modules}, "a SuperNode starts a process for every message, also if it only asks who"
from fedbn_flower import server_app
assert not {"torch", "pydantic", "fedbn_flower.server"} & {*sys.modules}, "a door imports what it leads to"
assert not half, half
import fedbn_flower.core.private, fedbn_flower.runtime.grid
assert "ray" not in sys.modules, "they use none of it"
"""


def test_the_doors_are_light_and_can_be_loaded_beside_what_the_other_imports():
    """Flower loads the ClientApp while the server's thread imports the federation. Python lets a thread use a
    module that another has half imported where their imports form a ring: so the door's form none."""
    done = subprocess.run([sys.executable, "-c", DOORS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
