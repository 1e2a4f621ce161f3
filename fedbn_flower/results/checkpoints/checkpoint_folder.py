"""Checkpoints: everything a run needs to go on as if it had never stopped.

``checkpoint/server.safetensors`` holds the model, the rule's vectors and, as metadata, the counters;
``checkpoint/clients`` is a folder of the clients' memories. The server file is replaced last, so it always
names a round whose client files are complete; a client file of a later round belongs to a checkpoint that
was never finished and is ignored.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedbn_flower.clients import Groups

from ...core.errors import UserError
from ...core.files import json_text, sync_folder, write_atomically
from ...records.checkpoint import Checkpoint
from .background_writer import Writer
from .memory_folder import MemoryFolder, Moment, client_name, partition_of

LAST, BEST = "checkpoint", "best"
"""A run's folders of the last checkpoint, and of the one made after the best round."""


class CheckpointFolder:
    """Reads and writes a folder of checkpoints: a run's `LAST`, or, with patience, also its `BEST`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.server = path / "server.safetensors"
        self._clients = cache(partial(MemoryFolder, path / "clients"))  # by signature; a run has one

    def save(self, checkpoint: Checkpoint, memories: Iterable[tuple[int, Groups]], writer: Writer) -> None:
        """Have a checkpoint written; ``memories`` are those of the partitions that trained since the last
        one. All of it is taken down now; it is on disk when the writer is done."""
        self.path.mkdir(parents=True, exist_ok=True)
        folder = self._clients(checkpoint.signature or "")
        written = []
        for partition, groups in memories:
            if groups:
                written.append(client_name(partition))
                file = folder.packed(written[-1], checkpoint.run, checkpoint.server_round, groups)
                writer.do(file.write, len(file.content))
        entries = {f"model/{name}": array.numpy() for name, array in checkpoint.arrays.items()}
        entries |= {f"rule/{name}": vector for name, vector in checkpoint.rule.items()}
        facts = {
            "round": checkpoint.server_round,
            "updates": checkpoint.updates,
            "counters": checkpoint.counters,
            "run": checkpoint.run,
            "signature": checkpoint.signature,
            "draws": checkpoint.draws,
        }
        contiguous = {name: np.require(entry, requirements="C") for name, entry in entries.items()}
        server = save(contiguous, {"facts": json_text(facts)})

        def complete() -> None:
            folder.sync()
            write_atomically(self.server, server)
            sync_folder(self.path)
            folder.tidy(written, Moment(checkpoint.run, checkpoint.server_round, checkpoint.server_round))

        writer.do(complete, len(server))

    def last_round(self) -> int:
        """The round of the last checkpoint; 0 without one.

        Raises
        ------
        UserError
            When it cannot be read.
        """
        if not self.server.exists():
            return 0
        with self._opened() as file:
            return int(json.loads(file.metadata()["facts"])["round"])

    def load(self) -> Checkpoint | None:
        """The last checkpoint, or None if the run was stopped before its first.

        Raises
        ------
        UserError
            When it cannot be read.
        """
        if not self.server.exists():
            return None
        with self._opened() as file:
            facts = json.loads(file.metadata()["facts"])
            entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        model = {n.removeprefix("model/"): a for n, a in entries.items() if n.startswith("model/")}
        return Checkpoint(
            facts["round"],
            facts["updates"],
            ArrayRecord({name: Array(array) for name, array in model.items()}),
            {n.removeprefix("rule/"): a for n, a in entries.items() if n.startswith("rule/")},
            facts["counters"],
            facts["run"],
            facts["signature"],
            facts.get("draws", {}),  # what was saved before there were any has none
        )

    def memory(self, checkpoint: Checkpoint, partition: int) -> Groups:
        """What a client remembered at the checkpoint; nothing if it never trained."""
        moment = checkpoint.run, checkpoint.server_round
        folder = self._clients(checkpoint.signature or "")
        found = folder.load(client_name(partition), *moment, earlier_runs=False)
        return found[1] if found else {}

    def partitions(self, checkpoint: Checkpoint) -> list[int]:
        """Whose memories are here, in order."""
        return sorted(map(partition_of, self._clients(checkpoint.signature or "").clients()))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with safe_open(self.server, "np") as file:
                yield file
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"resume: the checkpoint {str(self.server)!r} cannot be read ({error})"
            ) from error
