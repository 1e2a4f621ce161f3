"""Checkpoints: everything a run needs to go on as if it had never stopped.

``checkpoint/server.safetensors`` holds the model, the rule's vectors and, as metadata, the counters;
``checkpoint/clients/PARTITION-ROUND.safetensors`` a client's memory after the round. The server file is
replaced last, so it always names a round whose client files are complete; a client file of a later round
belongs to a checkpoint that was never finished and is ignored.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ..errors import UserError
from ..files import sync_folder, write_atomically

ClientStates = Callable[[int], bytes]
"""A client's memory by partition, as `ClientState.to_bytes` gives it."""


@dataclass(frozen=True)
class Checkpoint:
    """The server's side after ``server_round``.

    ``counters`` are the run folder's own; ``has_clients`` says whether client files belong to it (Flower's
    own runtimes keep client memories where we cannot read them); ``run`` is the name that clients know the
    run by.
    """

    server_round: int
    updates: int
    arrays: ArrayRecord
    rule: dict[str, NDArray]
    counters: dict[str, Any]
    has_clients: bool
    run: str


class CheckpointFolder:
    """Reads and writes the ``checkpoint`` folder of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.server = path / "server.safetensors"
        self.clients = path / "clients"

    def save(self, checkpoint: Checkpoint, changed: Iterable[int], states: ClientStates | None) -> None:
        """Write a checkpoint; ``changed`` are the clients that trained since the last one."""
        self.clients.mkdir(parents=True, exist_ok=True)
        changed = set(changed)
        for partition in sorted(changed):
            if states and (state := states(partition)):
                name = f"{partition}-{checkpoint.server_round}.safetensors"
                write_atomically(self.clients / name, state)
        entries = {f"model/{name}": array.numpy() for name, array in checkpoint.arrays.items()}
        entries |= {f"rule/{name}": vector for name, vector in checkpoint.rule.items()}
        facts = {
            "round": checkpoint.server_round,
            "updates": checkpoint.updates,
            "counters": checkpoint.counters,
            "has-clients": checkpoint.has_clients,
            "run": checkpoint.run,
        }
        contiguous = {name: np.require(entry, requirements="C") for name, entry in entries.items()}
        sync_folder(self.clients)
        write_atomically(self.server, save(contiguous, {"facts": json.dumps(facts)}))
        sync_folder(self.path)
        for partition, written, path in self._client_files():
            if partition in changed and written != checkpoint.server_round:
                path.unlink()

    def load(self) -> Checkpoint | None:
        """The last checkpoint, or None if the run was stopped before its first.

        Raises
        ------
        UserError
            When it cannot be read.
        """
        if not self.server.exists():
            return None
        try:
            with safe_open(self.server, "np") as file:
                facts = json.loads(file.metadata()["facts"])
                entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"resume: the checkpoint {str(self.server)!r} cannot be read ({error})"
            ) from error
        model = {n.removeprefix("model/"): a for n, a in entries.items() if n.startswith("model/")}
        return Checkpoint(
            facts["round"],
            facts["updates"],
            ArrayRecord({name: Array(array) for name, array in model.items()}),
            {n.removeprefix("rule/"): a for n, a in entries.items() if n.startswith("rule/")},
            facts["counters"],
            facts["has-clients"],
            facts["run"],
        )

    def client_states(self, server_round: int) -> Iterator[tuple[int, bytes]]:
        """Every client's memory as it was after ``server_round``."""
        newest: dict[int, tuple[int, Path]] = {}
        for partition, written, path in self._client_files():
            if written <= server_round:
                newest[partition] = max(newest.get(partition, (0, path)), (written, path))
        for partition, (_, path) in sorted(newest.items()):
            yield partition, path.read_bytes()

    def _client_files(self) -> list[tuple[int, int, Path]]:
        """(partition, round, path) of every client file."""
        found = []
        for path in self.clients.glob("[0-9]*.safetensors"):
            partition, server_round = path.stem.split("-")
            found.append((int(partition), int(server_round), path))
        return found
