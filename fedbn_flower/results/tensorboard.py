"""Rounds as TensorBoard sees them: an optional extra."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.run_config import RunConfig
from ..core.errors import not_allowed
from ..records.events import Observer, RoundResult

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

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
    """Writes every figure of a round under its name in ``metrics.csv``, and its seconds and failures."""

    def __init__(self, writer: "SummaryWriter") -> None:
        self._writer = writer

    def on_round(self, result: RoundResult) -> None:
        told = {"seconds": result.seconds, "failures": float(result.failures), **result.figures}
        for name, value in told.items():
            self._writer.add_scalar(name, value, result.server_round)
        self._writer.flush()


@contextmanager
def tensorboard(config: RunConfig, folder: Path, first_round: int) -> Iterator[list[Observer]]:
    """The observer that the configuration asks for, or none. What an earlier process wrote of ``first_round``
    and later ones, TensorBoard forgets."""
    if not config.tensorboard:
        yield []
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder / FOLDER, purge_step=first_round) as writer:
        yield [TensorBoard(writer)]
