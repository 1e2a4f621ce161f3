"""The Flower ClientApp: what ``flwr run`` and SuperNodes start.

It is a light door: the node's worker answers, and stays for the next message (`warm`). Without one,
what trains and evaluates is imported by the message that needs it, and torch with it.
"""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from .core.ground.collector import no_collection
from .core.logs import one_line_for_mistakes
from .site.queries import answer_queries, answered

one_line_for_mistakes()
app = ClientApp()
answer_queries(app)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the received model."""
    return answered(message, context, _train)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the received model."""
    return answered(message, context, _evaluate)


def _train(message: Message, context: Context) -> Message:
    with no_collection():
        from .site import adapter

    return adapter.train(message, context)


def _evaluate(message: Message, context: Context) -> Message:
    with no_collection():
        from .site import adapter

    return adapter.evaluate(message, context)
