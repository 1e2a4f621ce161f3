"""The Flower ServerApp: what ``flwr run`` starts."""

from .core.ground.collector import no_collection

with no_collection():
    from .runtime import server_app

app = server_app.app
