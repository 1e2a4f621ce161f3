"""Weights & Biases."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from ..records.events import RunInfo
from .base import PROJECT, Tracker


class WeightsAndBiases(Tracker):
    """Writes into the run's folder, and sends what it writes unless it is offline.

    It is offline where ``WANDB_MODE`` says so, or where there is no API key, instead of asking for one.
    """

    name: ClassVar = "wandb"

    def start(self, info: RunInfo, folder: Path, earlier: str | None) -> str:
        import wandb  # seconds, and an extra

        online = "WANDB_MODE" in os.environ or wandb.login(prompt=False, verify=False)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.name,
            dir=str(folder),
            id=earlier,
            resume="allow" if earlier else None,
            mode=None if online else "offline",
            config=dict(info.config),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        return str(self._run.id)

    def log(self, server_round: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=server_round)

    def end(self, folder: Path, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
