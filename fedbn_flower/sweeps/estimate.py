"""How long runs will take, from a few steps of each kind of them on their own data."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import Message, MessageType, RecordDict
from flwr.common import Scalar

from fedbn_flower.clients import ContextStore, FedAvgClient, LocalTask, Memory, Received, by_name
from fedbn_flower.clients.lockstep import fit_in_lockstep
from fedbn_flower.strategies.aggregation.fold import GROUP
from fedbn_flower.strategies.messages.wire import ARRAYS, CONFIG, EVAL_SPLITS, FINE_TUNE

from ..config.registry import CLIENT
from ..config.run_config import RunConfig
from ..federation.cohorts import why_one_by_one
from ..federation.federation import Federation
from ..federation.inputs import inputs_of
from ..federation.tasks import local_task
from ..records.columns import TEST
from ..runtime.grid import partition_of
from ..runtime.inline import InlineGrid

STEPS = 8
EXAMPLES = 1024
NO_MATTER = ("seed", "rounds", "run-dir", "resume", "local-epochs", "num-clients", "checkpoint-every")
"""Keys that change how much is done, not how long a step takes; so do all that are a broken number."""


@dataclass(frozen=True)
class Work:
    """What all clients and the server together do in a round."""

    clients: float
    """Clients that train."""
    steps: float
    """Steps of their optimisers."""
    evaluations: float
    """Times that a model is evaluated."""
    examples: float
    """Held-out examples that are evaluated."""


@dataclass(frozen=True)
class Speed:
    """Seconds of one core: of a client beside its steps, of a step, of an evaluation beside its examples, of
    a held-out example."""

    client: float
    step: float
    evaluation: float
    example: float


def work_of(federation: Federation) -> Work:
    """A round's work, on average over the clients; stragglers and absent clients are taken for others."""
    config = federation.config
    inputs = federation.inputs
    shares = inputs.partitions
    training = local_task(config, 0, {}).training
    tasks = (local_task(config, i, {}) for i in range(config.num_clients))
    steps = float(np.mean([training.steps(task.train) for task in tasks]))
    trained = config.clients_a_round
    asked = int(config.num_training * config.fraction_evaluate + 1e-9)
    after_training = config.eval_model == "local"
    evaluating = trained if after_training else max(1, asked) if config.fraction_evaluate else 0
    split = config.held_out_splits(final=False)
    whole = len(federation.dataset.test) if split == TEST else len(shares.val_rows)
    rows = shares.test if split == TEST else shares.val
    local = inputs.evaluates_locally
    own = float(np.mean([len(r) for r in rows])) if local else whole
    alike = not (local or federation.local_names or after_training or config.fine_tune)
    times = min(1, evaluating) if alike else evaluating  # the first one's is found for the others
    server = whole if federation.server_evaluates else 0
    every = config.evaluate_every
    return Work(
        trained,
        trained * steps + evaluating * config.fine_tune / every,
        (times + federation.server_evaluates) / every,
        (times * own + server) / every,
    )


def kind_of(config: RunConfig) -> tuple[tuple[str, object], ...]:
    """What a step's time depends on."""
    values = config.to_user_config().items()
    return tuple((k, v) for k, v in values if not isinstance(v, float) and k not in NO_MATTER)


def speed_of(config: RunConfig) -> Speed:
    """Measured on clients of the first round, in a few seconds where a step does not take one."""
    messages = _first_messages(config)
    if not messages:
        return Speed(0, 0, 0, 0)
    together = messages[: 1 if why_one_by_one(inputs_of(config)) else GROUP]
    task = local_task(config, partition_of(messages[0]), {})
    client, step = _fitted(lambda n: _fit(config, together, n), task.training.steps(task.train), STEPS)
    split = config.held_out_splits(final=False)
    evaluation, example = _fitted(
        lambda n: _evaluate(config, messages[0], split, n), len(task.evaluation[split]), EXAMPLES
    )
    return Speed(client / len(together), step / len(together), evaluation, example)


def _fitted(do: Callable[[int], object], most: int, enough: int) -> tuple[float, float]:
    """Seconds of ``do(n)`` as ``a + b n``, from n = 1 and a greater one that takes about a second."""
    do(1)  # what is only slow the first time
    few = _seconds(do, 1)
    count = max(2, min(most, enough, int(enough / 8 / few)))
    slope = max(0.0, _seconds(do, count) - few) / (count - 1)
    return max(0.0, few - slope), slope


def seconds_a_round(work: Work, speed: Speed) -> float:
    """Seconds of one core."""
    trained = work.clients * speed.client + work.steps * speed.step
    return trained + work.evaluations * speed.evaluation + work.examples * speed.example


class _Listening(InlineGrid):
    """Answers nothing that is to be trained, and keeps it."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config.num_clients, config.to_user_config())
        self.heard: list[Message] = []

    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        if messages and messages[0].metadata.message_type == MessageType.TRAIN:
            self.heard = messages
            raise _Heard
        return super().work(messages, timeout)


class _Heard(Exception):
    pass


def _first_messages(config: RunConfig) -> list[Message]:
    """To those who train in the first round, if anybody does."""
    only = config.model_copy(update={"rounds": 1, "resume": ""})
    grid = _Listening(only)
    with suppress(_Heard):
        Federation(only).run(grid, [])
    return grid.heard


def _fit(config: RunConfig, messages: list[Message], steps: int) -> None:
    """Have clients do so many steps each; what comes of it is nobody's."""
    clients = []
    for message in messages:
        task = local_task(config, partition_of(message), {})
        share = min(1.0, (steps - 0.5) / task.training.steps(task.train))
        clients.append(_client(config, replace(task, share=_always(share))))
    received, told = _received(clients[0], messages[0])
    with suppress(Exception):  # it may diverge, or raise: the run will tell
        if len(clients) > 1:
            fit_in_lockstep(clients, received, told)
        else:
            clients[0].fit(received, told)


def _always(share: float) -> Callable[[int], float]:
    return lambda _: share


def _evaluate(config: RunConfig, message: Message, split: str, count: int) -> None:
    """Have a client evaluate what it received on so many examples."""
    task = local_task(config, partition_of(message), {})
    examples = task.evaluation[split]
    few = {split: replace(examples, rows=examples.rows[:count])}
    client = _client(config, replace(task, evaluation=few))
    received, told = _received(client, message)
    with suppress(Exception):
        client.evaluate(received, {**told, EVAL_SPLITS: split})


def _client(config: RunConfig, task: LocalTask) -> FedAvgClient:
    return CLIENT.find(config.client)(task, Memory(ContextStore(RecordDict())))


def _received(client: FedAvgClient, message: Message) -> tuple[Received, dict[str, Scalar]]:
    """What a client is given to train on, without an evaluation after it."""
    records = {
        name: {entry: array.numpy() for entry, array in record.items()}
        for name, record in message.content.array_records.items()
    }
    arrays = by_name(records.pop(ARRAYS), client.shared_names)
    told = {k: v for k, v in message.content.config_records[CONFIG].items() if not isinstance(v, list)}
    told |= {EVAL_SPLITS: "", FINE_TUNE: 0}
    return Received(arrays, records), told


def _seconds(do: Callable[[int], object], count: int) -> float:
    started = time.perf_counter()
    do(count)
    return time.perf_counter() - started
