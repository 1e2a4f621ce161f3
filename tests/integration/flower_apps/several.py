"""Several runs of the app one after the other in one of Flower's, whose processes start once for all.

The key ``several`` names a file with the configuration of each. Every message says of which run it is, and a
node keeps what it remembers of each apart.
"""

import json
from pathlib import Path

from flwr.app import ConfigRecord, Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedbn_flower import client_app
from fedbn_flower.core.partition_id import answer_partition_id

server = ServerApp()
client = ClientApp()
client.query("partition_id")(answer_partition_id)


def configs(path):
    return json.loads(Path(path).read_text())


def with_config(context, number, state):
    """The context of one of the runs."""
    keys = dict(context.run_config)
    own = configs(keys.pop("several"))[number]
    return Context(context.run_id, context.node_id, context.node_config, state, keys | own)


class Numbered:
    """Flower's grid, with the number of a run on each message."""

    def __init__(self, grid, number):
        self.grid, self.number = grid, number

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, messages):
        messages = list(messages)
        for message in messages:
            message.content["several"] = ConfigRecord({"number": self.number})
        return self.grid.push_messages(messages)


@server.main()
def main(grid, context):
    from fedbn_flower.runtime import server_app  # no client needs what it imports

    for number in range(len(configs(context.run_config["several"]))):
        server_app.main(Numbered(grid, number), with_config(context, number, RecordDict()))


def numbered(answer):
    """Answer a message as in its run."""

    def answered(message, context):
        number = message.content.pop("several")["number"]
        mine = [name for name in context.state if name.startswith(f"{number}/")]
        state = RecordDict({name.partition("/")[2]: context.state.pop(name) for name in mine})
        reply = answer(message, with_config(context, number, state))
        for name, record in state.items():
            context.state[f"{number}/{name}"] = record
        return reply

    return answered


client.train()(numbered(client_app.train))
client.evaluate()(numbered(client_app.evaluate))
