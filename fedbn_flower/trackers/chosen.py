"""The tracker that a run asks for."""

from importlib.util import find_spec
from pkgutil import resolve_name

from ..config.run_config import RunConfig
from ..core.errors import not_allowed
from ..records.events import Observer

_PLACES = {
    "mlflow": "mlflow:MLflow",
    "tensorboard": "tensorboard:TensorBoard",
    "wandb": "wandb:WeightsAndBiases",
}
"""Every tracker by the name of its package and extra, ``module:class`` in this package."""


def check_installed(config: RunConfig) -> None:
    """Refuse a tracker whose package is not there.

    Raises
    ------
    UserError
        With how to install it.
    """
    if config.track in _PLACES and not _is_installed(config.track):
        install = f"pip install 'fedbn-flower[{config.track}]'"
        raise not_allowed("track", config.track, f"none, for {config.track} is not installed: {install}")


def trackers(config: RunConfig) -> list[Observer]:
    """Return the tracker that the configuration asks for, if any."""
    chosen = [_PLACES[config.track]] if config.track in _PLACES else []
    return [resolve_name(f"{__package__}.{place}")() for place in chosen]


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # a folder wandb/ has a specification, too
