"""Select the nodes of a round by the data and the losses of its clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray

from fedbn_flower.strategies import Candidates, PseudoGradientStrategy, ReplyRefused, Selection
from fedbn_flower.strategies.messages.gate import refusing
from fedbn_flower.strategies.messages.replies import Replies
from fedbn_flower.strategies.messages.validation import check_metrics

from ..core.errors import RunFailed
from ..core.ground.columns import TRAIN
from ..core.ground.wire import CONFIG, EVAL_SPLITS, FINE_TUNE, LOSS, NUM_EXAMPLES
from ..extensions.base import Exchange, Moment
from ..extensions.selection import KEY, UNIFORM, selection_named
from ..job.inputs import RunInputs
from ..names import as_user_error


def selection_of_round(inputs: RunInputs, moment: Moment) -> SelectionOfRound | None:
    """Return how the nodes of a round are selected; None for a uniform sample."""
    text = inputs.config.selection
    if text == UNIFORM:  # needs no sizes or losses of clients
        return None
    sizes = inputs.partitions.train.sizes
    return SelectionOfRound(text, selection_named(text), sizes, moment.exchange, moment.rule)


@dataclass(frozen=True)
class SelectionOfRound:
    """The `strategies.messages.nodes.NodeSelection` of a run's key ``selection``.

    Parameters
    ----------
    name : str
        The key's value.
    selection : Selection
        The selection of this name.
    sizes : NDArray
        int64, shape (num-clients,): the training examples of each partition.
    exchange : Exchange
        Asks for losses; their bytes count towards the round.
    strategy : PseudoGradientStrategy
        Knows the nodes' partitions, and the allowed ranges of their metrics.
    """

    name: str
    selection: Selection
    sizes: NDArray[np.int64]
    exchange: Exchange
    strategy: PseudoGradientStrategy

    def __call__(
        self,
        server_round: int,
        nodes: Sequence[int],
        count: int,
        rng: np.random.Generator,
        content: RecordDict,
    ) -> list[int]:
        """Return at most ``count`` of the nodes, in their given order.

        Raises
        ------
        RunFailed
            If a user's selection raises, or returns anything but positions.
        """
        partitions = np.array([self.strategy.node_directory.partition(node) for node in nodes])
        known = partitions < len(self.sizes)
        sizes = np.zeros(len(nodes), np.int64)
        sizes[known] = self.sizes[partitions[known].astype(np.int64)]

        def losses(positions: NDArray[np.int64]) -> NDArray[np.float64]:
            asked = [nodes[i] for i in positions]
            found = self._losses(server_round, asked, content)
            return np.array([found.get(int(partitions[i]), np.nan) for i in positions])

        candidates = Candidates(server_round, partitions, sizes, losses)
        with as_user_error(KEY, self.name, RunFailed):
            chosen = np.asarray(self.selection.choose(candidates, count, rng))
        if chosen.size == 0:
            return []
        distinct = np.unique(chosen)
        if (
            chosen.dtype.kind not in "iu"
            or len(distinct) < chosen.size
            or chosen.size > count
            or not 0 <= distinct[0] <= distinct[-1] < len(nodes)
        ):
            raise RunFailed(
                f"{KEY}: {self.name!r} chose {chosen.tolist()} in round {server_round}; expected at most "
                f"{count} different positions from 0 to {len(nodes) - 1}"
            )
        return [nodes[i] for i in distinct]

    def _losses(self, server_round: int, nodes: Sequence[int], content: RecordDict) -> dict[int, float]:
        """Return each answering client's loss on its training examples, by partition."""
        config = {key: value for key, value in content.config_records[CONFIG].items() if key != FINE_TUNE}
        question = RecordDict({**content, CONFIG: ConfigRecord({**config, EVAL_SPLITS: TRAIN})})
        messages = [Message(question, node, MessageType.EVALUATE) for node in nodes]
        replies, phase = Replies(self.strategy.node_directory), "candidates"
        replies.expect(phase, server_round, messages)

        def read(answer: RecordDict) -> float:
            with refusing():
                _, metrics = check_metrics(answer, NUM_EXAMPLES)
                self.strategy.expected_metrics.check(metrics)
            loss = metrics.get(LOSS)
            if not isinstance(loss, float):
                raise ReplyRefused(f"no {LOSS!r}")
            return loss

        answers = self.exchange.answers(MessageType.EVALUATE, messages, counted=False)
        return {partition: loss for _, partition, loss in replies.usable(phase, server_round, answers, read)}
