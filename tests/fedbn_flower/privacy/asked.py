"""A site that is asked by hand, as a server that is not honest would ask it."""

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedbn_flower.core import private
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.runtime.grid import RUN_ID
from fedbn_flower.site.adapter import answer_all, app
from strategies.messages.npy import encoded

KINDS = ["train", "evaluate", "query.sizes", "query.counts", "query.moments", "query.names"]
"""Messages whose answers are of a site's data."""
RUN = "20260101T000000000000-0000000a"


class Site:
    """A SuperNode with this configuration of the run and of the node; ``keys`` replace some of the run's."""

    def __init__(self, config, keys=(), **node_config):
        self.keys = dict(keys)
        self.config = config
        self.node_config = {key.replace("_", "-"): value for key, value in node_config.items()}

    def ask(self, kind, config=None, run=RUN, flower_run=RUN_ID, records=(), **asked):
        """Return the answer to one message, whose config also has what is ``asked``."""
        config = config or self.config
        given = {"server-round": 1, "checkpoint-round": 0, "run": run, "eval-splits": "test"}
        given |= {"client-lr": 0.1}
        given |= {key.replace("_", "-"): value for key, value in asked.items()}
        inputs = inputs_of(config)
        model = {name: encoded(inputs.initial().entries[name]) for name in inputs.split.shared}
        content = RecordDict({"arrays": ArrayRecord(model), "config": ConfigRecord(given), **dict(records)})
        private.identify_process(flower_run)
        message = Message(content, 2, kind)
        private.set_message_id(message, "1")
        node_config = {"partition-id": 0, **self.node_config}
        run_config = config.to_user_config() | self.keys
        context = Context(flower_run, 2, node_config, RecordDict(), run_config)
        return app(message, context) if self.keys else answer_all([message], [context])[0]

    def refusal(self, kind, *given, **asked):
        """Return why a message is not answered."""
        reply = self.ask(kind, *given, **asked)
        assert reply.has_error(), reply.content
        return reply.error.reason

    def metrics(self, kind, *given, **asked):
        """Return the metrics of the answer."""
        reply = self.ask(kind, *given, **asked)
        assert reply.has_content(), reply.error.reason
        return dict(reply.content["metrics"])
