"""Trackers of experiments: TensorBoard, MLflow, Weights & Biases. Each is an optional extra."""

from importlib.util import find_spec
from pkgutil import resolve_name

from ...config.run_config import RunConfig
from ...core.errors import not_allowed
from ...records.events import Observer

_PLACES = {
    "mlflow": "mlflow:MLflow",
    "tensorboard": "tensorboard:TensorBoard",
    "wandb": "wandb:WeightsAndBiases",
}
"""Every tracker by the name of its package and extra, ``module:class`` in this package."""


def check_trackers(config: RunConfig) -> None:
    """Refuse a tracker that is not installed.

    Raises
    ------
    UserError
        With how to install it.
    """
    for name in _names(config):
        if not _is_installed(name):
            key, value, instead = ("track", name, "none") if name == config.track else (name, True, "false")
            install = f"pip install 'fedbn-flower[{name}]'"
            raise not_allowed(key, value, f"{instead}, for {name} is not installed: {install}")


def trackers(config: RunConfig) -> list[Observer]:
    """Return the trackers that the configuration asks for."""
    return [resolve_name(f"{__name__}.{_PLACES[name]}")() for name in _names(config)]


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # a folder wandb/ has a specification, too


def _names(config: RunConfig) -> list[str]:
    chosen = {config.track} | ({"tensorboard"} if config.tensorboard else set())
    return sorted(chosen & _PLACES.keys())
