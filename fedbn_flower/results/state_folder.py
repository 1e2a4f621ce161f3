"""A client's memory on disk, where a SuperNode has a ``state-dir``: it outlives the SuperNode and the run.

``STATE_DIR/EXPERIMENT/CLIENT/RUN-ROUND.safetensors`` is what the client remembered after a round. Files of
the rounds since the server's last checkpoint are kept, so that a run resumed from it finds every client as
it was then; and one file at least from before the newest, should that be damaged.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ..files import remove_unfinished, sync_folder, write_atomically

LOGGER = logging.getLogger("flwr.fedbn")

Entries = Mapping[str, NDArray]

RUN = r"\d{8}T\d{12}-[0-9a-f]{8}"
KEPT = 2  # the newest, and one more should that be damaged


class Generation(NamedTuple):
    """A file; later runs and rounds sort higher."""

    run: str
    server_round: int
    path: Path


class _Refused(Exception):
    """A file cannot be used; the message says why."""


@dataclass(frozen=True)
class Moment:
    """Which message of which run a client is at.

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


@dataclass(frozen=True)
class StateFolder:
    """The files of one client in one experiment.

    Parameters
    ----------
    state_dir : Path
        The SuperNode's ``state-dir``.
    experiment, client : str
        Names of folders.
    signature : str
        Tells the model, the client and the objective that memories fit.
    """

    state_dir: Path
    experiment: str
    client: str
    signature: str

    @property
    def path(self) -> Path:
        return self.state_dir / self.experiment / self.client

    def load(self, moment: Moment, after_training: bool, continue_state: bool) -> dict[str, NDArray]:
        """What the client remembers when the message comes; empty for nothing.

        Parameters
        ----------
        moment : Moment
            The message.
        after_training : bool
            Whether the round's own training counts (when evaluating), or is to be done (again).
        continue_state : bool
            Whether a run in which the client has not trained yet starts from the memory of the run before.
        """
        generations = sorted(self._generations(), reverse=True)
        last = moment.server_round - (not after_training)
        own = [g for g in generations if g.run == moment.run and g.server_round <= last]
        earlier = [g for g in generations if g.run < moment.run] if continue_state else []
        for generation in [*own, *earlier]:
            try:
                entries = self._read(generation)
            except _Refused as refusal:
                LOGGER.warning("client state %s is not used: %s", generation.path, refusal)
                continue
            LOGGER.info("client state: round %d of run %s", generation.server_round, generation.run)
            return entries
        LOGGER.info("client state: none yet in %s for run %s", self.path, moment.run)
        return {}

    def save(self, moment: Moment, entries: Entries) -> None:
        """Write what the client remembers after the round; then take away what nobody can ask for."""
        self.path.mkdir(parents=True, exist_ok=True)
        facts = self._facts(moment.run, moment.server_round) | {"digest": _digest(entries)}
        path = self.path / f"{moment.run}-{moment.server_round:06d}.safetensors"
        write_atomically(path, save(dict(entries), facts))
        sync_folder(self.path)
        for generation in self._useless(moment):
            generation.path.unlink(missing_ok=True)
        remove_unfinished(self.path)

    def _useless(self, moment: Moment) -> Iterator[Generation]:
        """What no message to come can ask for, once the moment's own is written."""
        generations = sorted(self._generations(), reverse=True)
        own = [g for g in generations if g.run == moment.run]
        yield from (g for g in own if g.server_round > moment.server_round)  # before the run was resumed
        done = [g for g in own if g.server_round <= moment.server_round]
        saved = [g for g in done if g.server_round <= moment.checkpoint_round]
        yield from (g for g in saved[1:] if g not in done[:KEPT])
        yield from [g for g in generations if g.run < moment.run][1:]

    def _generations(self) -> list[Generation]:
        found = []
        for path in self.path.glob("*.safetensors"):
            if match := re.fullmatch(rf"({RUN})-(\d{{6,}})", path.stem):
                found.append(Generation(match[1], int(match[2]), path))
        return found

    def _facts(self, run: str, server_round: int) -> dict[str, str]:
        return {
            "experiment": self.experiment,
            "client": self.client,
            "run": run,
            "round": str(server_round),
            "signature": self.signature,
        }

    def _read(self, generation: Generation) -> dict[str, NDArray]:
        try:
            with safe_open(generation.path, "np") as file:
                facts = dict(file.metadata() or {})
                entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise _Refused(f"it cannot be read ({error})") from error
        digest = facts.pop("digest", "")
        for key, expected in self._facts(generation.run, generation.server_round).items():
            if facts.get(key) != expected and key != "signature":
                raise _Refused(f"it is of {key} {facts.get(key)!r}, not {expected!r}")
        if facts.get("signature") != self.signature:
            raise _Refused("it is of another model, client or objective")
        if digest != _digest(entries):
            raise _Refused("it is damaged")
        return entries


def signature(client: str, objective: str, initial: Entries) -> str:
    """Tells what a memory fits: the client, the objective, and the model's names, shapes and dtypes."""
    model = sorted((name, str(entry.dtype), list(entry.shape)) for name, entry in initial.items())
    return hashlib.sha256(json.dumps([client, objective, model]).encode()).hexdigest()


def _digest(entries: Entries) -> str:
    """Of names, dtypes, shapes and contents: a file may have its length and yet not all its blocks."""
    digest = hashlib.sha256()
    for name, entry in sorted(entries.items()):
        digest.update(json.dumps([name, str(entry.dtype), list(entry.shape)]).encode())
        digest.update(np.ascontiguousarray(entry).data)
    return digest.hexdigest()
