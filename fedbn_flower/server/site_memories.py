"""The server's view of the memories that sites keep: which are missing, and who is told of a run's end."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedbn_flower.strategies.messages.nodes import MAX_NAMES, KnowsPartitions, NodeDirectory

from ..core.errors import RunFailed
from ..core.ground.wire import CONFIG, FOUND, KEPT, MEMORY, ON_DISK, QUERY_COMPLETE, RUN, SERVER_ROUND

LOGGER = logging.getLogger("flwr.fedbn")

LONGEST_WAIT = 60.0
"""Seconds that the end of a run waits for sites to note it."""


class FoundMemory(NamedTuple):
    """The rounds of the memory that a site found and of the one that it keeps, and whether on disk."""

    node: int
    found: int
    kept: int
    on_disk: bool


@dataclass
class SiteMemories:
    """Compares the memory that a site found with the one that it last reported to keep.

    Nothing is compared in a simulation, which keeps the memories itself.

    Parameters
    ----------
    nodes : NodeDirectory
        Says which site a node is.
    resumes : bool
        Whether the run was resumed from a checkpoint, which requires that some site still has its memory.
    kept : dict[str, int]
        The round of the memory that a site reports to keep, by partition, or by node id if that is unknown.
    on_disk : bool
        Whether a site keeps it in files, which outlive the run.
    lost : dict[str, list[int]]
        The rounds in which a site lacked the memory that it had reported, by the same.
    """

    nodes: NodeDirectory
    resumes: bool = False
    kept: dict[str, int] = field(default_factory=dict)
    on_disk: bool = False
    lost: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._answered: list[bool] = []
        """For each train answer in a resumed run's first round, whether the memory was there."""
        self._enough = min(2, len(self.kept))
        """How many of these must be False before the run's memories count as lost."""

    def state(self) -> dict[str, Any]:
        """Return the checkpoint's entries, by attribute; empty if no site keeps a memory."""
        state = {"kept": self.kept, "on_disk": self.on_disk, "lost": self.lost}
        return state if self.kept or self.lost else {}

    def note(self, grid: Grid, server_round: int, phase: str, found: Iterable[FoundMemory]) -> None:
        """Note what sites reported in a phase (see `noting`); warn of those without their memory."""
        for memory in () if isinstance(grid, KnowsPartitions) else found:
            self._note(server_round, phase, memory)

    def check(self) -> None:
        """End a resumed run after the first round in which sites with a memory answered, if all lost it.

        Raises
        ------
        RunFailed
            If there were at least two of them, or only one site keeps a memory at all.
        """
        if self.resumes and self._answered:
            self.resumes = False
            if len(self._answered) >= self._enough and not any(self._answered):
                raise RunFailed(
                    f"resume: none of {len(self._answered)} sites has its memory of this run any more, and "
                    "what stays at home would begin anew; start a new run: init gives it this one's model"
                )

    def _note(self, server_round: int, phase: str, memory: FoundMemory) -> None:
        node, found, kept, on_disk = memory
        site = str(self.nodes.partition(node))
        expected = self.kept.get(site, 0)
        if expected and self.resumes and phase == MessageType.TRAIN:
            self._answered.append(found >= expected)
        if found < expected:
            has = f"that of round {found}" if found else "none: what stays there begins anew"
            LOGGER.warning(
                "round %d, %s: %s kept a memory of round %d, and now has %s",
                server_round, phase, self.nodes.name(node), expected, has,
            )  # fmt: skip
            self.lost.setdefault(site, []).append(server_round)
        if kept:
            self.kept[site] = kept
            self.on_disk |= on_disk
        else:
            self.kept.pop(site, None)

    def tell_complete(self, grid: Grid, run: str, last_round: int, timeout: float) -> None:
        """Tell the sites that a run is complete, so that they remove files that are no longer needed.

        A site that cannot be reached keeps its memories; a log line says so.
        """
        waiting = set(self.kept)
        if not waiting or not self.on_disk:
            return
        content = RecordDict({CONFIG: ConfigRecord({RUN: run, SERVER_ROUND: last_round})})
        sites = {node: str(self.nodes.partition(node)) for node in grid.get_node_ids()}
        messages = [Message(content, node, QUERY_COMPLETE) for node in sites if sites[node] in waiting]
        replies = grid.send_and_receive(messages, timeout=min(timeout, LONGEST_WAIT))
        asked = {message.metadata.message_id: sites[message.metadata.dst_node_id] for message in messages}
        waiting -= {asked.get(reply.metadata.reply_to_message_id) for reply in replies if reply.has_content()}
        if waiting:
            LOGGER.info(
                "%d of %d sites have not heard that the run is complete, and keep all of its memories: %s",
                len(waiting), len(self.kept), ", ".join(sorted(waiting)[:MAX_NAMES]),
            )  # fmt: skip


def noting(replies: Iterable[Message], found: list[FoundMemory]) -> Iterator[Message]:
    """Yield the replies unchanged; append what they report about memories to ``found``."""
    for reply in replies:
        if reply.has_content() and (memory := _memory_in(reply)):
            found.append(memory)
        yield reply


def _memory_in(reply: Message) -> FoundMemory | None:
    """Return what a reply reports about its site's memory; None without a report, or with an invalid one."""
    record = reply.content.config_records.get(MEMORY)
    if record is None:  # a site with an earlier version
        return None
    found, kept = record.get(FOUND), record.get(KEPT)
    if not (type(found) is int and type(kept) is int and 0 <= found <= kept):
        return None
    return FoundMemory(reply.metadata.src_node_id, found, kept, record.get(ON_DISK) is True)
