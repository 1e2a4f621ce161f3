"""What fits the data where nothing was chosen, told by the dataset's name alone."""

_IMAGES = {"model": "mlp-bn", "partition": "silos:0-4,5-9"}
_BEGINNINGS = {
    "text:": {"model": "char-lstm", "partition": "natural:speaker"},
    "synthetic:": {"model": "linear", "partition": "natural:client"},
    "quadratic:": {"model": "linear", "partition": "natural:client"},
    "shape:": {"model": "mlp-bn", "partition": "iid"},
}
_TABLE = {"model": "mlp-bn", "partition": "iid"}
_ENDINGS = {".csv": _TABLE, ".parquet": _TABLE}


def defaults_for(dataset: str) -> dict[str, str]:
    """``model`` and ``partition`` for a dataset of this name."""
    if dataset.startswith("shape:") and dataset.endswith(":characters"):
        return _BEGINNINGS["text:"]
    for beginning, chosen in _BEGINNINGS.items():
        if dataset.startswith(beginning):
            return chosen
    return next((chosen for ending, chosen in _ENDINGS.items() if dataset.endswith(ending)), _IMAGES)
