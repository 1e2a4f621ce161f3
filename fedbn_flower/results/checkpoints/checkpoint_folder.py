"""Checkpoints: everything needed to resume a run as if it had never stopped.

``checkpoint/server.safetensors`` holds the model, older versions of it that clients still train, the rule's
vectors and, as metadata, the counters.
``checkpoint/clients`` holds the clients' memories. The server file is replaced last, so it always names a
round whose client files are complete. A client file of a later round belongs to an unfinished checkpoint and
is ignored. Both are their owner's alone: they hold what stays at a client. A thread writes them.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from safetensors import safe_open

from fedbn_flower.clients import Groups
from fedbn_flower.strategies.messages.npy import viewed

from ...core.errors import UserError
from ...core.files import ONLY_OWNER, json_text, sync_folder, write_atomically
from ...core.free_memory import regular
from ...core.stored import DAMAGES
from ...records.array_file import array_file
from ...records.checkpoint import Checkpoint
from ...site.memory_folder import MemoryFolder, Moment, client_name, partition_of

MAX_QUEUED = 2**28  # bytes that wait to be written


class BackgroundWriter:
    """Run jobs in order on one thread, while the run continues.

    After a failure no further job runs, since later jobs may rely on earlier ones. The failure is raised to
    whoever waits.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._queue: deque[tuple[Future[None], int]] = deque()
        self._failed = False

    def submit(self, job: Callable[[], object], size: int) -> None:
        """Queue a job that holds ``size`` bytes; wait while the queued jobs hold more than `MAX_QUEUED`.

        What the job writes must not change in the meantime.
        """
        while sum(queued for _, queued in self._queue) > MAX_QUEUED:
            self._wait_for_first()
        self._queue.append((self._thread.submit(self._run, job), size))

    def wait(self) -> None:
        """Wait until all jobs are done."""
        while self._queue:
            self._wait_for_first()

    def close(self) -> None:
        """Wait until all jobs are done, then end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _wait_for_first(self) -> None:
        self._queue[0][0].result()
        self._queue.popleft()

    def _run(self, job: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            job()
        except BaseException:
            self._failed = True
            raise


LAST, BEST = "checkpoint", "best"
"""A run's folders: of the last checkpoint, and of the checkpoint after the best round."""


class CheckpointFolder:
    """Read and write a checkpoint folder: a run's `LAST` or, with patience, its `BEST`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.server = path / "server.safetensors"
        self._clients = cache(partial(MemoryFolder, path / "clients"))  # keyed by signature; a run has one

    def save(
        self, checkpoint: Checkpoint, memories: Iterable[tuple[int, Groups]], writer: BackgroundWriter
    ) -> None:
        """Save a checkpoint.

        The content is copied before this returns. It is on disk once the writer is done.

        Parameters
        ----------
        checkpoint : Checkpoint
            The server's side.
        memories : Iterable[tuple[int, Groups]]
            Partition and memory of each client that trained since the last checkpoint.
        writer : BackgroundWriter
            Writes the files.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        folder = self._clients(checkpoint.signature or "")
        written = []
        for partition, groups in memories:
            if groups:
                written.append(client_name(partition))
                file = folder.pack(written[-1], checkpoint.run, checkpoint.server_round, groups)
                writer.submit(file.write, len(file.content))
        entries = {f"model/{name}": viewed(array) for name, array in checkpoint.arrays.items()}
        entries |= {f"counted/{name}": viewed(array) for name, array in checkpoint.counted.items()}
        entries |= {f"rule/{name}": vector for name, vector in checkpoint.rule.items()}
        entries |= {f"extension/{name}": array for name, array in checkpoint.extensions.items()}
        for version, arrays in checkpoint.versions.items():
            entries |= {f"version/{version}/{name}": viewed(array) for name, array in arrays.items()}
        for model, arrays in checkpoint.models.items():
            entries |= {f"models/{model}/{name}": viewed(array) for name, array in arrays.items()}
        metadata = {
            "round": checkpoint.server_round,
            "updates": checkpoint.updates,
            "counters": checkpoint.counters,
            "run": checkpoint.run,
            "signature": checkpoint.signature,
            "draws": checkpoint.draws,
            **({"assigned": checkpoint.assigned} if checkpoint.assigned else {}),
        }
        server = array_file(self.server.name, entries, {"facts": json_text(metadata)})

        def complete() -> None:
            folder.sync()
            write_atomically(self.server, server, ONLY_OWNER)
            sync_folder(self.path)
            folder.remove_obsolete(
                written, Moment(checkpoint.run, checkpoint.server_round, checkpoint.server_round)
            )

        writer.submit(complete, len(server))

    def last_round(self) -> int:
        """Return the round of the last checkpoint, or 0 without one.

        Raises
        ------
        UserError
            When the checkpoint cannot be read.
        """
        if not self.server.exists():
            return 0
        with self._open() as file:
            return int(json.loads(file.metadata()["facts"])["round"])

    def load(self) -> Checkpoint | None:
        """Return the last checkpoint, or None if the run stopped before its first.

        Raises
        ------
        UserError
            When the checkpoint cannot be read.
        """
        if not self.server.exists():
            return None
        with self._open() as file:
            metadata = json.loads(file.metadata()["facts"])
            entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            model = _under("model/", entries)
            versions = {int(number): arrays for number, arrays in _by_model("version/", entries).items()}
            return Checkpoint(
                metadata["round"],
                metadata["updates"],
                ArrayRecord({name: Array(array) for name, array in model.items()}),
                _under("rule/", entries),
                metadata["counters"],
                metadata["run"],
                metadata["signature"],
                metadata.get("draws", {}),  # older checkpoints have no draws
                versions,
                _under("extension/", entries),
                ArrayRecord({name: Array(array) for name, array in _under("counted/", entries).items()}),
                _by_model("models/", entries),
                {int(client): name for client, name in metadata.get("assigned", {}).items()},
            )

    def memory(self, checkpoint: Checkpoint, partition: int) -> Groups:
        """Return a client's memory at the checkpoint; empty if the client never trained."""
        folder = self._clients(checkpoint.signature or "")
        found = folder.load(
            client_name(partition), checkpoint.run, checkpoint.server_round, earlier_runs=False
        )
        return found[1] if found else {}

    def partitions(self, checkpoint: Checkpoint) -> list[int]:
        """Return the partitions that have a memory in the folder, in ascending order."""
        return sorted(map(partition_of, self._clients(checkpoint.signature or "").clients()))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            with safe_open(regular(self.server), "np") as file:
                yield file
        except DAMAGES as error:
            raise UserError(
                f"resume: the checkpoint {str(self.server)!r} cannot be read ({error})"
            ) from error


def _under(prefix: str, entries: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Return the entries whose names have a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in entries.items() if name.startswith(prefix)}


def _by_model(prefix: str, entries: Mapping[str, NDArray]) -> dict[str, ArrayRecord]:
    """Return the models whose entries have a prefix and then the name of their model."""
    models: dict[str, ArrayRecord] = {}
    for text, entry in _under(prefix, entries).items():
        model, name = text.split("/", 1)
        models.setdefault(model, ArrayRecord())[name] = Array(entry)
    return models
