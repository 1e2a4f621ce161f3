"""TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from ..records.events import RunInfo
from .base import Tracker

FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Writes scalars into the run's folder.

    What an earlier process wrote of the first round and later ones, TensorBoard forgets.
    """

    name: ClassVar = "tensorboard"

    def start(self, info: RunInfo, folder: Path, earlier: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # seconds, and an extra

        self._writer = SummaryWriter(folder / FOLDER, purge_step=info.first_round)

    def log(self, server_round: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, server_round)
        self._writer.flush()

    def end(self, folder: Path, failed: bool) -> None:
        self._writer.close()
