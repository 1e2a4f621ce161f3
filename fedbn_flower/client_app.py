"""The Flower ClientApp: what ``flwr run`` and SuperNodes start.

What trains and evaluates is imported by the first message that needs it, and torch with it.
"""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from .core.logs import one_line_for_mistakes
from .core.partition_id import answer_partition_id

one_line_for_mistakes()
app = ClientApp()
app.query("partition_id")(answer_partition_id)


@app.query("moments")
def moments(message: Message, context: Context) -> Message:
    """Tell the moments of the node's training examples."""
    from .federation.checks.site_statistics import answer_moments

    return answer_moments(message, context)


@app.query("counts")
def counts(message: Message, context: Context) -> Message:
    """Tell the counts of the node's data."""
    from .federation.checks.site_counts import answer_counts

    return answer_counts(message, context)


@app.query("complete")
def complete(message: Message, context: Context) -> Message:
    """Remove the memories that no run can need, since one is complete."""
    from .results.checkpoints.site_folder import answer_complete

    return answer_complete(message, context)


@app.query("sizes")
def sizes(message: Message, context: Context) -> Message:
    """Tell how many training examples the node has, where that is public."""
    from .federation.checks.site_sizes import answer_sizes

    return answer_sizes(message, context)


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
