"""The Flower ClientApp: what ``flwr run`` and SuperNodes start.

What trains and evaluates is imported by the first message that needs it, and torch with it.
"""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from .core.logs import one_line_for_mistakes
from .runtime.queries import answer_queries

one_line_for_mistakes()
app = ClientApp()
answer_queries(app)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the received model."""
    from .runtime import client_adapter

    return client_adapter.train(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the received model."""
    from .runtime import client_adapter

    return client_adapter.evaluate(message, context)
