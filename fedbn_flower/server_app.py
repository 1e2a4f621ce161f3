"""The Flower ServerApp: what ``flwr run`` starts."""

from .runtime import server_app

app = server_app.app
