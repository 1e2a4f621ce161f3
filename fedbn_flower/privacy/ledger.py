"""The ledger of a run: what it has published, written to the disk before that leaves the server.

``privacy.jsonl`` has the terms of the run in its first line, and a line for every vector that was published.
A line is on the disk before the vector is used. So a run that is killed has at most been charged for what
never left, and never the other way round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.errors import RunFailed, UserError, os_errors_as_user_errors
from ..core.files import json_text, sync_folder, write_atomically
from ..core.free_memory import regular
from ..core.stored import DAMAGES

NAME = "privacy.jsonl"


@dataclass(frozen=True)
class Charge:
    """One published vector.

    Parameters
    ----------
    round, attempt : int
        The round, and which attempt at it: more than 1 after a resume that could not repeat the first.
    clip, next_clip : float
        C of the round, and that of the next as far as it is known: a round that is charged before clients
        are asked has its own in both.
    epsilon : float
        Epsilon of all that was published, with this.
    digest : str
        SHA-256 of what was published.
    clients : tuple[int, ...]
        The partition ids of those that were asked, where epsilon is each client's own or clients take turns.
    mark : str
        Of the sum whose noise this is, see `Key.mark_of`; empty under a public key, or where clients add it.
    """

    round: int
    attempt: int
    clip: float
    next_clip: float
    epsilon: float
    digest: str
    clients: tuple[int, ...] = ()
    mark: str = ""


class Ledger:
    """Reads and extends a run's ``privacy.jsonl``.

    Parameters
    ----------
    path : Path
        The file.
    terms : Mapping[str, Any]
        What the noise was calibrated for, for a new file.
    key : str
        The key that names its folder, for messages.

    Raises
    ------
    UserError
        When there is a file that cannot be read.
    """

    def __init__(self, path: Path, terms: Mapping[str, Any], key: str = "run-dir") -> None:
        self.path = path
        self.key = key
        self.terms = dict(terms)
        self.charges: list[Charge] = []
        if path.exists():
            self._read()
        else:
            write_atomically(path, json_text(self.terms) + "\n")
            sync_folder(path.parent)

    @property
    def epsilon(self) -> float:
        """Epsilon of all that was published."""
        return self.charges[-1].epsilon if self.charges else 0.0

    def of_round(self, server_round: int) -> list[Charge]:
        """Return what was published in a round, by attempt."""
        return [charge for charge in self.charges if charge.round == server_round]

    def last_of(self, server_round: int) -> Charge | None:
        """Return the last of `of_round`, if there is one."""
        return next(iter(reversed(self.of_round(server_round))), None)

    def charge(self, new: Charge) -> None:
        """Write a charge to the disk; one that is there already is the same vector, and costs nothing.

        Raises
        ------
        RunFailed
            When this attempt has published another vector: both with the same noise would tell what was added
            up.
        UserError
            When it cannot be written. Then nothing may leave.
        """
        for known in self.of_round(new.round):
            if known.attempt == new.attempt:
                if known.digest != new.digest:
                    raise RunFailed(
                        f"privacy: round {new.round} differs from what it has published before, and a second "
                        "result under the same noise would take the noise off; begin a new run"
                    )
                return
        with (
            os_errors_as_user_errors(self.key, f"write to {str(self.path)!r}"),
            self.path.open("ab", buffering=0) as file,
        ):
            file.write(_line(new).encode())
            os.fsync(file.fileno())
        self.charges.append(new)

    def _read(self) -> None:
        """Read the file; drop a last line that a kill has cut off: what it is for has not left."""
        try:
            *lines, rest = regular(self.path).read_text().split("\n")
            terms, *charges = map(json.loads, lines)
            self.terms, self.charges = dict(terms), [_charge(**charge) for charge in charges]
        except DAMAGES as error:
            raise UserError(f"resume: the ledger {str(self.path)!r} cannot be read ({error})") from error
        if rest:
            write_atomically(self.path, _text(self.terms, self.charges))
            sync_folder(self.path.parent)


def _text(terms: Mapping[str, Any], charges: Iterable[Charge]) -> str:
    return "".join([json_text(terms) + "\n", *map(_line, charges)])


def _line(charge: Charge) -> str:
    left_out = {"clients": (), "mark": ""}
    return json_text({n: value for n, value in asdict(charge).items() if left_out.get(n) != value}) + "\n"


def _charge(clients: Iterable[int] = (), **values: Any) -> Charge:
    return Charge(clients=tuple(clients), **values)
