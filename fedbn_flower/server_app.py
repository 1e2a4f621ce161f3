"""The Flower ServerApp: what ``flwr run`` starts.

It is a light door: Flower loads one app after the other, and its simulation starts Ray once both are loaded.
So what runs the federation is imported while Ray starts.
"""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from .core.ground.collector import no_collection

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run config describes."""
    with no_collection():
        from .runtime import server_app

    server_app.main(grid, context)
