"""The Flower ClientApp: what ``flwr run`` and SuperNodes start."""

from .runtime import client_adapter

app = client_adapter.app
