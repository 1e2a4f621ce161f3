"""The audit log of a site: a line for each answer, each with a hash of all before it. It only grows.

A line says what left, by kind and bytes, never a value. The file ``head`` has the number of lines and the
last hash, so that a line taken from the end is missed, too. Whoever can write to the folder can write another
log with other hashes: note the last one elsewhere, as ``fedbn-sim audit`` shows it.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from errno import ENOSPC
from pathlib import Path
from typing import Any

from filelock import FileLock
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict

from ..cli.argument_parser import Parser
from ..core.errors import UserError, os_errors_as_user_errors
from ..core.files import json_text, path_of, sync_folder, write_atomically
from ..core.ground.wire import CONFIG, SERVER_ROUND
from ..core.private import LOGGER, ErrorCode, records_bytes
from ..core.text import number_of, visible
from ..site.queries import Answers
from .studies import admitted_studies, run_digest

LOG, HEAD = "audit.jsonl", "head"
START = "0" * 64
"""Stands for the hash before the first line."""
KEY = re.compile(r"[a-z][a-z-]{0,40}")
"""What a refusal begins with: the key that it is of."""


def only_admitted(message: Message, context: Context, here: Answers) -> Message:
    """Answer a message of a study that the site has admitted (``studies``); refuse every other run."""
    admitted = admitted_studies(path_of(str(context.node_config["studies"])))
    digest = run_digest(context.run_config)
    if digest in admitted:
        return here(message, context)
    reason = f"studies: this site has not admitted the study {digest} (keys and code of this run)"
    LOGGER.warning("refused: %s", reason)
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def logged(message: Message, context: Context, here: Answers) -> Message:
    """Answer a message once a line of what leaves is in the site's log (``audit``).

    Raises
    ------
    UserError
        When the line cannot be written, or the log is not as it was left. Then nothing leaves.
    """
    folder = path_of(str(context.node_config["audit"]))
    try:
        reply = here(message, context)
    except Exception as error:
        append(folder, _line(message, context, type(error).__name__, {"error": ["text", len(str(error))]}))
        raise
    if reply.has_error():
        reason = reply.error.reason or ""
        key = reason.partition(":")[0]
        why = f"refused: {key}" if KEY.fullmatch(key) else "failed"
        append(folder, _line(message, context, why, {"error": ["text", len(reason)]}))
    else:
        append(folder, _line(message, context, "answered", _left(reply)))
    return reply


def _left(reply: Message) -> dict[str, list[Any]]:
    """What leaves by the name of its record: kind, and bytes."""
    return {
        name: [type(record).__name__, sum(len(array.data) for array in record.values())]
        if isinstance(record, ArrayRecord)
        else [type(record).__name__, len(records_bytes(RecordDict({name: record})))]
        for name, record in reply.content.items()
    }


def _line(message: Message, context: Context, outcome: str, left: Mapping[str, Any]) -> dict[str, Any]:
    asked: Mapping[str, Any] = message.content.config_records.get(CONFIG, {}) if message.has_content() else {}
    number = asked.get(SERVER_ROUND, 0)
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"), "run": str(context.run_id),
        "study": run_digest(context.run_config), "round": number if type(number) is int else 0,
        "asked": message.metadata.message_type, "outcome": outcome, "left": left,
        "epsilon": spent(context.node_config),
    }  # fmt: skip


def spent(node_config: Mapping[str, Any]) -> float:
    """Return the epsilon of all that a node's ledgers have; 0 without any."""
    found = 0.0
    for path in (path_of(str(node_config.get("state-dir", ""))) / "privacy").glob("*.jsonl"):
        with suppress(OSError, ValueError, LookupError, TypeError):
            last = json.loads(path.read_bytes().split(b"\n")[-2])["epsilon"]  # after it a kill cut one off
            found = max(found, float("inf") if last is None else float(last))
    return found


def append(folder: Path, line: Mapping[str, Any]) -> None:
    """Add a line to a log; it is on the disk when this returns.

    Raises
    ------
    UserError
        When it cannot be written, or the log was changed.
    """
    with os_errors_as_user_errors("audit", f"write to {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not (folder / HEAD).exists() and not (folder / LOG).exists():
                write_atomically(folder / HEAD, f"0 {START}\n")
            (count, last), (lines, unfinished) = _head(folder), _lines(folder)
            if lines and len(lines) == count + 1 and _hash(last, lines[-1]) == _said_hash(lines[-1]):
                count, last = count + 1, _said_hash(lines[-1])  # a kill between line and head
            if len(lines) != count or (lines and _said_hash(lines[-1]) != last):
                raise UserError(f"audit: {str(folder)!r} is not as it was left; see fedbn-sim audit")
            text = json_text(dict(line))
            now = _hash(last, text)
            whole = f'{text[:-1]}, "hash": "{now}"}}\n'.encode()
            with (folder / LOG).open("ab", buffering=0) as file:
                file.truncate(end := file.tell() - len(unfinished))  # nothing left with it
                if file.write(whole) < len(whole):
                    file.truncate(end)
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
                os.fsync(file.fileno())
            write_atomically(folder / HEAD, f"{count + 1} {now}\n")
            sync_folder(folder)


def _head(folder: Path) -> tuple[int, str]:
    path = folder / HEAD
    said = path.read_text(errors="replace") if path.exists() else ""
    found = re.fullmatch("([0-9]{1,18}) ([0-9a-f]{64})\n", said)
    return (int(found[1]), found[2]) if found else (-1, "")


def _lines(folder: Path) -> tuple[list[str], bytes]:
    """The lines of a log, and what a kill or a full disk has left of one more."""
    path = folder / LOG
    *lines, unfinished = (path.read_bytes() if path.exists() else b"").split(b"\n")
    return [line.decode(errors="replace") for line in lines], unfinished


def _hash(before: str, line: str) -> str:
    """The hash of a line, with or without its own, and of all before it."""
    text = re.sub(r', "hash": "[0-9a-f]{64}"\}$', "}", line)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def _said_hash(line: str) -> str:
    found = re.search(r', "hash": "([0-9a-f]{64})"\}$', line)
    return found[1] if found else ""


def checked(folder: Path, after_a_kill: bool = False) -> list[dict[str, Any]]:
    """Return the lines of a log; it may be ``after_a_kill``, which the next answer mends.

    Raises
    ------
    UserError
        Names the first line that was changed, or before which one was taken out or added.
    """
    with os_errors_as_user_errors("audit", f"read {str(folder)!r}"):
        if not (folder / HEAD).is_file() and not (folder / LOG).exists():
            told = f"{str(folder)!r} has no log of a site; name the folder of its node config's audit"
            raise UserError(f"audit: {told}")
        (count, end), (lines, unfinished) = _head(folder), _lines(folder)
    if count < 0:
        raise UserError(f"audit: {str(folder / HEAD)!r} was changed or taken out")
    ends = [START]
    for number, line in enumerate(lines, 1):
        ends.append(_hash(ends[-1], line))
        if _said_hash(line) != ends[-1]:
            raise UserError(f"audit: line {number} was changed, or a line before it was added or taken out")
    more = len(lines) - count
    whole = (more == 0 and not unfinished) or (after_a_kill and 0 <= more <= 1)
    if not whole or ends[count] != end:
        what = "taken out" if len(lines) < count else "added"
        raise UserError(f"audit: {len(lines)} lines are there, {count} were written: the last were {what}")
    return [json.loads(line) for line in lines]


def audit(arguments: Sequence[str]) -> int:
    """Run ``audit DIR``: check a site's log, and show what left by run and study.

    Raises
    ------
    UserError
        When a line was changed, added or taken out.
    """
    parser = Parser("fedbn-sim audit", description="Check the audit log of a site, and show what left it.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder of the node config's audit")
    options = parser.parse_args(arguments)
    lines = checked(options.folder)
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["run"], line["study"], line["asked"], line["outcome"]), []).append(line)
    for (run, study, asked, outcome), found in groups.items():
        rounds = [line["round"] for line in found]
        sizes: Counter[str] = Counter()
        for name, (kind, size) in (item for line in found for item in line["left"].items()):
            sizes[f"{name} ({kind})"] += size
        left = ", ".join(f"{name} {size}" for name, size in sizes.items())
        told = f"run {run}, study {study[:12]}, rounds {min(rounds)}-{max(rounds)}, {asked}: {outcome} "
        last = f"epsilon {found[-1]['epsilon']}, last {found[-1]['when']}"
        print(visible(f"{told}{number_of(len(found), 'time')}; bytes that left: {left or 0}; {last}"))
    print(f"{len(lines)} lines, none changed; the last hash is {_head(options.folder)[1]}")
    return 0
