"""SuperNodes in this process, with a ``state-dir`` that is all they keep."""

from flwr.app import Context, RecordDict

from fedbn_flower.runtime.grid import LocalGrid, node_context, partition_of
from fedbn_flower.runtime.server_app import main as server_main
from fedbn_flower.site.adapter import answer_all


class PowerCut(BaseException):
    """Ends everything at once."""


class SuperNodes(LocalGrid):
    """Every message finds a SuperNode that has just been started: all it has is its ``state-dir``.

    The power goes before the client at ``position`` answers the train message of ``cut``.
    """

    def __init__(self, config, state_dir, cut=None, position=1):
        super().__init__(config.num_clients, config.to_user_config())
        self.state_dir, self.cut, self.position = state_dir, cut, position

    def work(self, messages, timeout):
        for i, message in enumerate(messages):
            facts = message.content.config_records.get("config", {})
            training = message.metadata.message_type == "train"
            if training and facts["server-round"] == self.cut and i == self.position:
                raise PowerCut
            context = node_context(partition_of(message), self.num_clients, self.run_config)
            if self.state_dir:
                context.node_config["state-dir"] = str(self.state_dir)
            yield from answer_all([message], [context])

    client_memory = None


def run_app(config, grid):
    keys = config.to_user_config() | {"backend": "auto"}  # which only simulations read
    server_main(grid, Context(1, 0, {}, RecordDict(), keys))
