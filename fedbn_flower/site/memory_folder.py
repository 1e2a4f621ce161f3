"""Folders of clients' memories: a SuperNode's ``state-dir``, and a checkpoint's ``clients``.

``CLIENT-RUN-ROUND.safetensors`` is the client's memory after a round. Files of all rounds since the server's
last checkpoint are kept, so that a run resumed from it finds each client's memory of that round. At least one
file older than the newest is kept, too, in case the newest is damaged.

A run removes only its own files. ``CLIENT-RUN.complete`` marks a run that the server has reported complete.
Its newest file is kept, for further rounds or for a run that continues from it, until two later runs are
complete. Files of incomplete runs are kept, or expire after the number of days in their metadata.

Each is a safetensors file with the memory's origin and a digest as metadata, as the client files of a
checkpoint are.
"""

import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from flwr.app import ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedbn_flower.clients import FORMER_NAMES, Groups

from ..config.making import config_at_site
from ..core.files import ONLY_OWNER, digest_of, path_of, remove_unfinished, sync_folder, write_atomically
from ..core.free_memory import regular
from ..core.ground.wire import CHECKPOINT_ROUND, CONFIG, RUN, SERVER_ROUND
from ..core.partition_id import name_of_data, partition_id_of
from ..records.array_file import array_file, writable
from .privacy import refusals_in_one_line

FILE = "a client's memory"
"""The name of such a file in messages."""
SIGNATURE, DIGEST, KEEP_DAYS = "signature", "digest", "keep-days"


class InvalidMemory(Exception):
    """A memory file cannot be used; the message gives the reason."""


def signature(name: str, client: str, objective: str, initial: Mapping[str, NDArray]) -> str:
    """Return a hash of what a memory depends on: the names, and the entries' names, dtypes and shapes.

    A renamed algorithm keeps its first name here, so that older memories still fit.
    """
    first_names = {now: before for names in FORMER_NAMES.values() for before, now in names.items()}
    client, objective = first_names.get(client, client), first_names.get(objective, objective)
    model = sorted((name, str(entry.dtype), list(entry.shape)) for name, entry in initial.items())
    return hashlib.sha256(json.dumps([name, client, objective, model]).encode()).hexdigest()


def pack(groups: Groups, metadata: Mapping[str, str]) -> bytes:
    """Return the content of a memory file; each array is stored as ``GROUP/NAME``."""
    arrays = {f"{group}/{name}": array for group, named in groups.items() for name, array in named.items()}
    entries = writable(FILE, arrays)
    return array_file(FILE, entries, {**metadata, DIGEST: digest_of(entries)})


def keep_days(path: Path) -> float:
    """Return the days after which a file expires; 0 if it states none, or cannot be read.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    """
    try:
        with safe_open(regular(path), "np") as file:
            return float((file.metadata() or {}).get(KEEP_DAYS, "0"))
    except FileNotFoundError:
        raise
    except (OSError, SafetensorError, ValueError):
        return 0.0


def unpack(path: Path, metadata: Mapping[str, str]) -> dict[str, dict[str, NDArray]]:
    """Return the memory in a file.

    Raises
    ------
    InvalidMemory
        When the file cannot be read, is damaged, or its metadata differ from ``metadata``.
    """
    try:
        with safe_open(regular(path), "np") as file:
            found = dict(file.metadata() or {})
            entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InvalidMemory(f"the file cannot be read ({error})") from error
    for key, expected in metadata.items():
        if found.get(key) != expected:
            if key == SIGNATURE:
                raise InvalidMemory("it belongs to another model, client, objective or memory-name")
            raise InvalidMemory(f"its {key} is {found.get(key)!r}; expected {expected!r}")
    if found.get(DIGEST) != digest_of(entries):  # after a crash a file of full length may lack blocks
        raise InvalidMemory("the file is damaged")
    groups: dict[str, dict[str, NDArray]] = {}
    for key, array in entries.items():
        group, name = key.split("/", 1)
        groups.setdefault(group, {})[name] = array
    return groups


LOGGER = logging.getLogger("flwr.fedbn")

RUN_NAME = r"\d{8}T\d{12}-[0-9a-f]{8}"
MIN_FILES = 2  # the newest, and a spare in case it is damaged
COMPLETE_RUNS = 2
"""How many complete runs keep their newest file."""
COMPLETE = "complete"
"""The suffix of the file that marks a complete run and contains the number of its last round."""
DAY = 86400.0  # seconds


def client_name(partition: int) -> str:
    """Return the name of a partition's client."""
    return f"client-{partition}"


def partition_of(client: str) -> int:
    """Return the partition of a client's name, the inverse of `client_name`."""
    return int(client.removeprefix("client-"))


class Generation(NamedTuple):
    """One file of a client; later runs and rounds sort higher."""

    run: str
    server_round: int
    path: Path


def run_of(config: ConfigRecord) -> str:
    """Read the run's name from a message's config.

    Raises
    ------
    ValueError
        When it is missing or malformed; it is checked because it becomes part of a path.
    """
    run = config.get(RUN)
    if not isinstance(run, str) or not re.fullmatch(RUN_NAME, run):
        raise ValueError(f"state-dir: the server sent {run!r} as the run's name; expected DATETIME-HEX")
    return run


@dataclass(frozen=True)
class Moment:
    """The run and round of a message.

    ``run`` names the run and sorts by its start; a resumed run keeps its name. ``checkpoint_round`` is the
    last round that the server may resume from.
    """

    run: str
    server_round: int
    checkpoint_round: int

    @classmethod
    def of(cls, config: ConfigRecord) -> "Moment":
        """Read the run and the rounds from a message's config.

        Raises
        ------
        ValueError
            When one is missing or malformed.
        """
        run = run_of(config)
        rounds = config.get(SERVER_ROUND), config.get(CHECKPOINT_ROUND)
        if not all(type(number) is int and number >= 0 for number in rounds):
            raise ValueError(
                f"state-dir: the server sent round {rounds[0]!r} and checkpoint round {rounds[1]!r}; "
                "expected whole numbers >= 0"
            )
        return cls(run, *rounds)  # type: ignore[arg-type]


class MemoryFile(NamedTuple):
    """A client's memory, ready to be written."""

    path: Path
    content: bytes

    def write(self) -> None:
        """Write the file, for its owner alone; it survives a power failure once `MemoryFolder.sync`
        has returned.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, self.content, ONLY_OWNER)


@dataclass(frozen=True)
class MemoryFolder:
    """Read, pack and clean up a folder of memories. The folder is listed once.

    Parameters
    ----------
    path : Path
        The folder; the first file that is written creates it.
    signature : str
        Which memories fit, see `signature`.
    keep_days : float
        Days after which written files expire if their run is not complete; 0 for never.
    """

    path: Path
    signature: str = ""
    keep_days: float = 0.0

    def load(
        self, client: str, run: str, last_round: int, earlier_runs: bool
    ) -> tuple[Generation, Groups] | None:
        """Return a client's newest valid memory, or None; warn about each invalid file.

        Parameters
        ----------
        client : str
            The client's name.
        run, last_round
            The run, and the last of its rounds whose memory may be used.
        earlier_runs : bool
            Whether a memory of an earlier run is used if this run has none.
        """
        generations = self._generations.get(client, [])
        current = [g for g in generations if g.run == run and g.server_round <= last_round]
        earlier = [g for g in generations if g.run < run] if earlier_runs else []
        return self._newest(client, [*current, *earlier])

    def clients(self) -> list[str]:
        """Return the names of all clients that have a file."""
        return list(self._generations)

    def pack(self, client: str, run: str, server_round: int, groups: Groups) -> MemoryFile:
        """Pack a client's memory after a round; the file is still to be written."""
        path = self.path / f"{client}-{run}-{server_round:06d}.safetensors"
        generation = Generation(run, server_round, path)
        files = {*self._generations.get(client, []), generation}
        self._generations[client] = sorted(files, reverse=True)
        days = {KEEP_DAYS: f"{self.keep_days:g}"} if self.keep_days else {}
        return MemoryFile(path, pack(groups, self._metadata(client, generation) | days))

    def sync(self) -> None:
        """Make the written files survive a power failure."""
        if self.path.exists():
            sync_folder(self.path)

    def remove_obsolete(self, clients: Iterable[str], moment: Moment) -> None:
        """Remove the run's obsolete files; call it once these clients' new memories are written."""
        for client in clients:
            current = [g for g in self._generations.get(client, []) if g.run == moment.run]
            self._remove(client, _obsolete(current, moment))

    def note_training(self, client: str, moment: Moment) -> None:
        """Note that a run trains, even if it was complete before; remove expired files of other runs."""
        mark = self._mark(client, moment.run)
        with contextlib.suppress(FileNotFoundError):
            if moment.server_round > int(mark.read_text() or 0):  # not a late message of the complete run
                mark.unlink()
        complete, now = self._complete(client), time.time()
        others = (g for g in self._generations.get(client, []) if g.run not in {moment.run, *complete})
        self._remove(client, [g for g in others if _is_expired(g.path, now)])

    def note_complete(self, client: str, run: str, last_round: int) -> int:
        """Note that a run is complete after a round; return how many files were removed.

        Its newest file up to that round is kept, as later training did not count. Complete runs before the
        last `COMPLETE_RUNS` lose all their files.
        """
        generations = self._generations.get(client, [])
        of_run = [g for g in generations if g.run == run]
        done = [g for g in of_run if g.server_round <= last_round]
        if done:
            write_atomically(self._mark(client, run), str(last_round))
        complete = self._complete(client)
        dropped = complete[COMPLETE_RUNS:]
        others = [g for g in of_run if g not in done[:1]]
        obsolete = [*others, *(g for g in generations if g.run in dropped)]
        self._remove(client, obsolete)
        for name in dropped:
            self._mark(client, name).unlink(missing_ok=True)
        remove_unfinished(self.path, f"{client}-{run}-")
        return len(obsolete)

    def _mark(self, client: str, run: str) -> Path:
        return self.path / f"{client}-{run}.{COMPLETE}"

    def _complete(self, client: str) -> list[str]:
        """Return the client's complete runs, the most recently completed one first."""
        found = []
        for path in self.path.glob(f"*.{COMPLETE}"):
            if match := re.fullmatch(rf"{re.escape(client)}-({RUN_NAME})", path.stem):
                with contextlib.suppress(FileNotFoundError):  # another process has removed it
                    found.append((path.stat().st_mtime_ns, match[1]))
        return [run for _, run in sorted(found, reverse=True)]

    def _remove(self, client: str, obsolete: Iterable[Generation]) -> None:
        gone = set(obsolete)
        for generation in gone:
            generation.path.unlink(missing_ok=True)
        self._generations[client] = [g for g in self._generations.get(client, []) if g not in gone]

    def _newest(self, client: str, generations: Iterable[Generation]) -> tuple[Generation, Groups] | None:
        for generation in generations:
            try:
                return generation, unpack(generation.path, self._metadata(client, generation))
            except InvalidMemory as error:
                LOGGER.warning("client memory %s is not used: %s", generation.path, error)
        return None

    @cached_property
    def _generations(self) -> dict[str, list[Generation]]:
        """Each client's files, newest first; `pack` adds to them."""
        found: dict[str, list[Generation]] = {}
        for path in self.path.glob("*.safetensors"):
            if match := re.fullmatch(rf"(.+)-({RUN_NAME})-(\d{{6,}})", path.stem):
                found.setdefault(match[1], []).append(Generation(match[2], int(match[3]), path))
        return {client: sorted(files, reverse=True) for client, files in found.items()}

    def _metadata(self, client: str, generation: Generation) -> dict[str, str]:
        return {
            "client": client,
            "run": generation.run,
            "round": str(generation.server_round),
            SIGNATURE: self.signature,
        }


def _obsolete(current: list[Generation], moment: Moment) -> Iterator[Generation]:
    """Yield the files that no later message can need, of a client's files of a run, newest first."""
    yield from (g for g in current if g.server_round > moment.server_round)  # from before a resumption
    done = [g for g in current if g.server_round <= moment.server_round]
    saved = [g for g in done if g.server_round <= moment.checkpoint_round]
    yield from (g for g in saved[1:] if g not in done[:MIN_FILES])


def _is_expired(path: Path, now: float) -> bool:
    """Whether a file is older than the days in its metadata; ``now`` is in seconds since the epoch."""
    try:
        days = keep_days(path)
        return bool(days) and now - path.stat().st_mtime > days * DAY
    except FileNotFoundError:  # another process has removed it
        return False


class FolderStore:
    """A client's memory in a folder, as of one message; a `clients.Store`.

    Parameters
    ----------
    folder : MemoryFolder
        Where the memory is kept.
    client : str
        The client's name.
    moment : Moment
        The run and round of the message.
    after_training : bool
        Whether the memory is that after the round's training (to evaluate), or before it (to train, maybe
        again).
    earlier_runs : bool
        Whether a client that has not yet trained in this run starts from its memory of the previous run.
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
        self.last_round = found[0].server_round if found and found[0].run == moment.run else 0
        if found:
            LOGGER.info("client memory: round %d of run %s", found[0].server_round, found[0].run)
        else:
            LOGGER.info("client memory: %s has none in %s for run %s", client, folder.path, moment.run)

    def read(self, group: str) -> dict[str, NDArray] | None:
        """Return the arrays of a group, or None if it has none."""
        arrays = self.groups.get(group)
        return None if arrays is None else dict(arrays)

    def save(self, written: Groups) -> None:
        """Write the whole memory; these groups replace those of the same names."""
        groups = {**self.groups, **written}
        self.folder.pack(self.client, self.moment.run, self.moment.server_round, groups).write()
        self.folder.sync()
        self.folder.note_training(self.client, self.moment)
        self.folder.remove_obsolete([self.client], self.moment)
        remove_unfinished(self.folder.path, f"{self.client}-{self.moment.run}-")
        self.groups, self.last_round = groups, self.moment.server_round


def name_of(context: Context) -> str:
    """Return the name of a node's client in file names."""
    partition_id = partition_id_of(context)
    if partition_id is not None:
        return client_name(partition_id)
    return name_of_data(str(context.node_config["data-path"]))


@refusals_in_one_line
def answer_complete(message: Message, context: Context) -> Message:
    """Remove the memories that no run can need any more, when the server reports that a run is complete.

    Raises
    ------
    ValueError
        When the run's name or its last round is malformed.
    """
    asked = message.content.config_records[CONFIG]
    run, last_round = run_of(asked), asked.get(SERVER_ROUND)
    if type(last_round) is not int or last_round < 0:
        raise ValueError(f"state-dir: the server sent round {last_round!r}; expected a whole number >= 0")
    if (state_dir := context.node_config.get("state-dir")) is not None:
        name = config_at_site(context).memory_name
        folder = MemoryFolder(path_of(str(state_dir)) / name)
        removed = folder.note_complete(name_of(context), run, last_round)
        LOGGER.info("client memory: run %s is complete; files removed: %d", run, removed)
    return Message(RecordDict(), reply_to=message)
