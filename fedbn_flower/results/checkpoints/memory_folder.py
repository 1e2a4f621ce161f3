"""Folders of clients' memories: a SuperNode's ``state-dir``, and a checkpoint's ``clients``.

``CLIENT-RUN-ROUND.safetensors`` is what the client remembered after a round. Files of the rounds since the
server's last checkpoint are kept, so that a run resumed from it finds every client as it was then; and one
file at least from before the newest, should that be damaged.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from flwr.app import ConfigRecord
from numpy.typing import NDArray

from fedbn_flower.clients import Groups

from ...core.files import remove_unfinished, sync_folder, write_atomically
from .memory_file import SIGNATURE, MemoryRefused, pack, unpack

LOGGER = logging.getLogger("flwr.fedbn")

RUN = r"\d{8}T\d{12}-[0-9a-f]{8}"
KEPT = 2  # the newest, and one more should that be damaged


def client_name(partition: int) -> str:
    """What the client of a partition is called."""
    return f"client-{partition}"


def partition_of(client: str) -> int:
    """The way back."""
    return int(client.removeprefix("client-"))


class Generation(NamedTuple):
    """A file; later runs and rounds sort higher."""

    run: str
    server_round: int
    path: Path


@dataclass(frozen=True)
class Moment:
    """Which round of which run a client is at.

    ``run`` names the run and sorts by its start; a resumed run keeps its name. ``checkpoint_round`` is the
    last round that the server may resume from.
    """

    run: str
    server_round: int
    checkpoint_round: int

    @classmethod
    def of(cls, config: ConfigRecord) -> "Moment":
        """What the server says in a message's config.

        Raises
        ------
        ValueError
            When it does not say it, or in another form: the name becomes part of a path.
        """
        run = config.get("run")
        rounds = config.get("server-round"), config.get("checkpoint-round")
        if not isinstance(run, str) or not re.fullmatch(RUN, run):
            raise ValueError(f"state-dir: the server calls its run {run!r}")
        if not all(type(number) is int and number >= 0 for number in rounds):
            raise ValueError(f"state-dir: the server is at round {rounds[0]!r}, checkpoint {rounds[1]!r}")
        return cls(run, *rounds)  # type: ignore[arg-type]


class MemoryFile(NamedTuple):
    """A client's memory as it is to be written."""

    path: Path
    content: bytes

    def write(self) -> None:
        """It lasts once `MemoryFolder.sync` returned."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, self.content)


@dataclass(frozen=True)
class MemoryFolder:
    """Reads, packs and tidies a folder of memories, which is listed once.

    Parameters
    ----------
    path : Path
        The folder; made by the first file that is written.
    signature : str
        Tells what memories fit, see `memory_file.signature`.
    """

    path: Path
    signature: str

    def load(
        self, client: str, run: str, last_round: int, earlier_runs: bool
    ) -> tuple[Generation, Groups] | None:
        """A client's newest memory up to a round of a run that can be trusted; what cannot is told.

        ``earlier_runs`` is whether the last memory of a run before stands in for one that is not there.
        """
        generations = self._generations.get(client, [])
        own = [g for g in generations if g.run == run and g.server_round <= last_round]
        earlier = [g for g in generations if g.run < run] if earlier_runs else []
        return self._newest(client, [*own, *earlier])

    def clients(self) -> list[str]:
        """Every client that has a file."""
        return list(self._generations)

    def packed(self, client: str, run: str, server_round: int, groups: Groups) -> MemoryFile:
        """What a client remembers after a round, to be written."""
        path = self.path / f"{client}-{run}-{server_round:06d}.safetensors"
        generation = Generation(run, server_round, path)
        files = {*self._generations.get(client, []), generation}
        self._generations[client] = sorted(files, reverse=True)
        return MemoryFile(path, pack(groups, self._facts(client, generation)))

    def sync(self) -> None:
        """Have what was written survive a power failure."""
        if self.path.exists():
            sync_folder(self.path)

    def tidy(self, clients: Iterable[str], moment: Moment) -> None:
        """Take away what nobody can ask for, once these clients' memories of the moment are written."""
        for client in clients:
            generations = self._generations.get(client, [])
            useless = set(_useless(generations, moment))
            for generation in useless:
                generation.path.unlink(missing_ok=True)
            self._generations[client] = [g for g in generations if g not in useless]

    def _newest(self, client: str, generations: Iterable[Generation]) -> tuple[Generation, Groups] | None:
        for generation in generations:
            try:
                return generation, unpack(generation.path, self._facts(client, generation))
            except MemoryRefused as refusal:
                LOGGER.warning("client memory %s is not used: %s", generation.path, refusal)
        return None

    @cached_property
    def _generations(self) -> dict[str, list[Generation]]:
        """Each client's files, the newest first; those that were packed since then among them."""
        found: dict[str, list[Generation]] = {}
        for path in self.path.glob("*.safetensors"):
            if match := re.fullmatch(rf"(.+)-({RUN})-(\d{{6,}})", path.stem):
                found.setdefault(match[1], []).append(Generation(match[2], int(match[3]), path))
        return {client: sorted(files, reverse=True) for client, files in found.items()}

    def _facts(self, client: str, generation: Generation) -> dict[str, str]:
        return {
            "client": client,
            "run": generation.run,
            "round": str(generation.server_round),
            SIGNATURE: self.signature,
        }


def _useless(generations: list[Generation], moment: Moment) -> Iterator[Generation]:
    """Of a client's files, the newest first: those that no message to come can ask for."""
    own = [g for g in generations if g.run == moment.run]
    yield from (g for g in own if g.server_round > moment.server_round)  # before the run was resumed
    done = [g for g in own if g.server_round <= moment.server_round]
    saved = [g for g in done if g.server_round <= moment.checkpoint_round]
    yield from (g for g in saved[1:] if g not in done[:KEPT])
    yield from [g for g in generations if g.run < moment.run][1:]


class FolderStore:
    """A client's memory in a folder, as it is when a message comes; a `clients.Store`.

    Parameters
    ----------
    folder : MemoryFolder
        Where it is kept.
    client : str
        Whose it is.
    moment : Moment
        The message's.
    after_training : bool
        Whether the round's own training counts (when evaluating), or is to be done (again).
    earlier_runs : bool
        Whether a client that has not trained yet in this run starts from the memory of the run before.
    """

    def __init__(
        self, folder: MemoryFolder, client: str, moment: Moment, after_training: bool, earlier_runs: bool
    ) -> None:
        self.folder = folder
        self.client = client
        self.moment = moment
        last_round = moment.server_round - (not after_training)
        found = folder.load(client, moment.run, last_round, earlier_runs)
        self.groups: Groups = found[1] if found else {}
        if found:
            LOGGER.info("client memory: round %d of run %s", found[0].server_round, found[0].run)
        else:
            LOGGER.info("client memory: none yet of %s in %s for run %s", client, folder.path, moment.run)

    def read(self, group: str) -> dict[str, NDArray] | None:
        """The arrays of a group, or None if there are none."""
        arrays = self.groups.get(group)
        return None if arrays is None else dict(arrays)

    def save(self, written: Groups) -> None:
        """Write the whole memory, with these groups in place of those of the same names."""
        groups = {**self.groups, **written}
        self.folder.packed(self.client, self.moment.run, self.moment.server_round, groups).write()
        self.folder.sync()
        self.folder.tidy([self.client], self.moment)
        remove_unfinished(self.folder.path, f"{self.client}-")
        self.groups = groups
