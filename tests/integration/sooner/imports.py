"""Programs of a federation import no more of Flower than they use: the rest is half of their start's CPU."""

import importlib
import sys
import threading
from types import ModuleType

import starlette.status


def nothing():
    """What nobody calls."""


NEVER = {
    "flower-superexec": (
        "flwr.supercore.cli.flwr_agentapp",
        "flwr.supercore.cli.flwr_connector",
        "flwr.supercore.cli.flwr_model",
        "flwr.supernode.cli.flower_supernode",
    ),
    "flower-superlink": ("flwr.superlink.cli.flwr_serverapp",),
    "flower-supernode": ("flwr.supernode.cli.flwr_clientapp",),
    "flwr": ("flwr.cli.chat.chat",),
    "flwr-clientapp": ("flwr.supernode.cli.flower_supernode",),
    "flwr-serverapp": ("flwr.superlink.cli.flower_superlink",),
    "flwr-simulation": (),
}
"""Modules with a command each, of its name, that is another program's, or of no test."""
LATER = {
    "flwr.server.superlink.linkstate.sql_linkstate": "SqlLinkState",
    "flwr.supercore.object_store.sql_object_store": "SqlObjectStore",
}
"""Modules with a class that has a database, which few programs have."""
FRAMEWORK = {
    "fastapi": {"status": starlette.status},
    "flwr.supercore.error.http": {"BearerAuthenticationError": nothing, "http_error_translator": nothing},
}
"""What of servers' framework the others want: the numbers of errors."""
SERVERS = {"flower-superlink", "flower-supernode"}
ALONE = threading.Lock()


def stand_in(name, values):
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update(values)


def maker_of(name, kind):
    def made(*arguments, **named):
        with ALONE:
            if getattr(sys.modules[name], kind) is made:
                del sys.modules[name]
            module = importlib.import_module(name)
        return getattr(module, kind)(*arguments, **named)

    return made


def import_less(program):
    for name in NEVER.get(program, ()):
        stand_in(name, {name.rpartition(".")[2]: nothing})
    for name, kind in LATER.items():
        stand_in(name, {kind: maker_of(name, kind)})
    if program not in SERVERS:
        for name, values in FRAMEWORK.items():
            stand_in(name, values)
        importlib.import_module("flwr.supercore.error")
        for name in FRAMEWORK:
            del sys.modules[name]
