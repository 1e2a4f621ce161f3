"""Rounds as TensorBoard sees them: an optional extra."""

from importlib.util import find_spec

from ..config.run_config import RunConfig
from ..core.errors import not_allowed
from ..records.events import Observer, RoundResult, RunInfo

FOLDER = "tensorboard"


def check_tensorboard(config: RunConfig) -> None:
    """Refuse to write for TensorBoard where it is not installed.

    Raises
    ------
    UserError
        With how to install it.
    """
    if config.tensorboard and find_spec("tensorboard") is None:
        install = "pip install 'fedbn-flower[tensorboard]'"
        raise not_allowed("tensorboard", True, f"false, for TensorBoard is not installed: {install}")


class TensorBoard(Observer):
    """Writes every metric of a round under its name in ``metrics.csv``, and its seconds and failures.

    What an earlier process wrote of the first round and later ones, TensorBoard forgets.
    """

    def on_start(self, info: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter  # seconds, and an extra

        assert info.folder
        self._writer = SummaryWriter(info.folder / FOLDER, purge_step=info.first_round)

    def on_round(self, result: RoundResult) -> None:
        numbers = {
            "seconds": result.seconds,
            "failures": float(result.failures),
            **result.rates,
            **result.metrics,
        }
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, result.server_round)
        self._writer.flush()

    def on_end(self, *_: object) -> None:
        self._writer.close()


def tensorboard(config: RunConfig) -> list[Observer]:
    """Return the observer that the configuration asks for, or none."""
    return [TensorBoard()] if config.tensorboard else []
