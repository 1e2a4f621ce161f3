"""A Flower app that does nothing: a message of 78 kB to each node, which sends it back at once.

With the key ``imports``, both sides import that module first, as any app of PyTorch does with torch.
"""

import json
import time
from importlib import import_module
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

PARAMETERS = 19476
"""Those of the model of the digits, in float32."""

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Send back the message."""
    _import(context)
    return Message(message.content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Time the exchanges; the seconds of each go to the file ``out``."""
    _import(context)
    nodes: list[int] = []
    while len(nodes) < int(context.run_config["nodes"]):
        time.sleep(0.5)
        nodes = list(grid.get_node_ids())
    content = RecordDict({"arrays": ArrayRecord({"0": Array(np.zeros(PARAMETERS, np.float32))})})
    seconds = []
    for _ in range(int(context.run_config["rounds"])):
        started = time.perf_counter()
        replies = list(grid.send_and_receive([Message(content, node, MessageType.TRAIN) for node in nodes]))
        seconds.append(time.perf_counter() - started)
        if not all(reply.has_content() for reply in replies):
            raise RuntimeError("an exchange failed")
    Path(str(context.run_config["out"])).write_text(json.dumps(seconds))


def _import(context: Context) -> None:
    if name := str(context.run_config["imports"]):
        import_module(name)
