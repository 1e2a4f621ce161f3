"""Estimate how long runs take, from a few steps of each kind of run on its data.

Describe a job without running it: its runs and about how long they take. Only decoded data are written.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import Message, MessageType, RecordDict
from flwr.common import Scalar

from fedbn_flower.clients import ContextStore, FedAvgClient, LocalTask, Memory, Received, by_name
from fedbn_flower.strategies.messages.npy import viewed

from .. import annexes
from ..config.run_config import RunConfig
from ..core.ground.columns import TEST
from ..core.ground.wire import ARRAYS, CONFIG, EVAL_SPLITS, FINE_TUNE
from ..core.text import duration, number_of
from ..extensions import KEY_GROUPS
from ..job.inputs import inputs_of
from ..names import CLIENT
from ..results.resume import RunToDo
from ..runtime.grid import InlineGrid, partition_of
from ..server.federation import Federation
from ..site.cohorts import Fit, cohort_of
from ..site.inputs import local_task
from ..site.messages import with_chosen_model

STEPS = 8
EXAMPLES = 1024
IRRELEVANT_KEYS = ("seed", "rounds", "run-dir", "resume", "local-epochs", "num-clients", "checkpoint-every")
"""Keys that do not change the time of a step, only the number of steps; so do all keys with a float value."""
WITHOUT_PROTECTION = {
    name: key.default for keys in KEY_GROUPS if keys.protects for name, key in keys.model_fields.items()
}
"""What an estimate has in the place of what protects a run's answers: nothing leaves its clients."""


@dataclass(frozen=True)
class Work:
    """The work of all clients and the server in one round, on average."""

    clients: float
    """The number of clients that train."""
    steps: float
    """The number of optimiser steps of all clients."""
    evaluations: float
    """The number of evaluations of a model."""
    examples: float
    """The number of held-out examples evaluated, counting repetitions."""


@dataclass(frozen=True)
class Speed:
    """Seconds on one core."""

    client: float
    """The overhead of a client that trains."""
    step: float
    """An optimiser step."""
    evaluation: float
    """The overhead of an evaluation."""
    example: float
    """A held-out example."""


def work_of(federation: Federation) -> Work:
    """Return a round's work, averaged over the clients; stragglers and absent clients count too."""
    config = federation.config
    inputs = federation.inputs
    shares = inputs.partitions
    training = local_task(config, 0, {}).training
    tasks = (local_task(config, i, {}) for i in range(config.num_clients))
    steps = float(np.mean([training.steps(task.train) for task in tasks]))
    trained = config.clients_a_round
    sampled = int(config.num_training * config.share_evaluating + 1e-9)
    after_training = config.eval_model == "local"
    evaluating = trained if after_training else max(1, sampled) if config.share_evaluating else 0
    split = config.held_out_splits(final=False)
    full = len(shares.test_rows) if split == TEST else len(shares.val_rows)
    rows = shares.test if split == TEST else shares.val
    local = inputs.evaluates_locally
    share = float(np.mean([len(r) for r in rows])) if local else full
    identical = not (local or inputs.local_names or after_training or config.fine_tune or config.adapt_bn)
    times = min(1, evaluating) if identical else evaluating  # the first evaluation is reused by the others
    server = full if inputs.server_evaluates else 0
    every = config.evaluate_every
    return Work(
        trained,
        trained * steps + evaluating * config.fine_tune / every,
        (times + inputs.server_evaluates) / every,
        (times * share + server) / every,
    )


def kind_of(config: RunConfig) -> tuple[tuple[str, object], ...]:
    """Return the keys and values that a step's time depends on."""
    values = config.to_user_config().items()
    return tuple((k, v) for k, v in values if not isinstance(v, float) and k not in IRRELEVANT_KEYS)


def speed_of(config: RunConfig) -> Speed:
    """Measure the speed on clients of the first round: a few seconds, unless a single step takes longer."""
    messages = _first_messages(config)
    if not messages:
        return Speed(0, 0, 0, 0)
    cohort = cohort_of(inputs_of(config))
    group = messages[: cohort.size]
    task = local_task(config, partition_of(messages[0]), {})
    most = task.training.steps(task.train)
    client, step = _fit_line(lambda n: _train(config, group, n, cohort.fit), most, STEPS)
    split = config.held_out_splits(final=False)
    evaluation, example = _fit_line(
        lambda n: _evaluate(config, messages[0], split, n), len(task.evaluation[split]), EXAMPLES
    )
    return Speed(client / len(group), step / len(group), evaluation, example)


def _fit_line(do: Callable[[int], object], most: int, enough: int) -> tuple[float, float]:
    """Return a and b of the seconds ``a + b n`` of ``do(n)``, from n = 1 and a larger n of about a second."""
    do(1)  # the first call is slower
    few = _seconds(do, 1)
    count = max(2, min(most, enough, int(enough / 8 / few)))
    slope = max(0.0, _seconds(do, count) - few) / (count - 1)
    return max(0.0, few - slope), slope


def seconds_a_round(work: Work, speed: Speed) -> float:
    """Return the seconds of a round on one core."""
    trained = work.clients * speed.client + work.steps * speed.step
    return trained + work.evaluations * speed.evaluation + work.examples * speed.example


class _RecordingGrid(InlineGrid):
    """A grid that keeps the first training messages and stops the run."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config.num_clients, config.to_user_config())
        self.messages: list[Message] = []

    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        if messages and messages[0].metadata.message_type == MessageType.TRAIN:
            self.messages = messages
            raise _Recorded
        return super().work(messages, timeout)


class _Recorded(Exception):
    pass


def _first_messages(config: RunConfig) -> list[Message]:
    """Return the training messages of the first round; empty if no client trains."""
    only = config.model_copy(update={"rounds": 1, "resume": ""} | WITHOUT_PROTECTION)
    grid = _RecordingGrid(only)
    with suppress(_Recorded):
        Federation(only).run(grid, [])
    return grid.messages


def _train(config: RunConfig, messages: list[Message], steps: int, fit: Fit | None) -> None:
    """Train each client for ``steps`` steps and discard the updates."""
    clients = []
    for message in messages:
        task = local_task(config, partition_of(message), {})
        share = min(1.0, (steps - 0.5) / task.training.steps(task.train))
        clients.append(_client(config, replace(task, share=_always(share))))
    received, instructions = _received(config, clients[0], messages[0])
    with suppress(Exception):  # the run itself reports errors
        if fit:
            fit(clients, received, instructions)
        else:
            clients[0].fit(received, instructions)


def _always(share: float) -> Callable[[int], float]:
    return lambda _: share


def _evaluate(config: RunConfig, message: Message, split: str, count: int) -> None:
    """Evaluate the received model on ``count`` examples of a client."""
    task = local_task(config, partition_of(message), {})
    examples = task.evaluation[split]
    few = {**task.evaluation, split: replace(examples, rows=examples.rows[:count])}
    client = _client(config, replace(task, evaluation=few))
    received, instructions = _received(config, client, message)
    with suppress(Exception):
        client.evaluate(received, {**instructions, EVAL_SPLITS: split})


def _client(config: RunConfig, task: LocalTask) -> FedAvgClient:
    return CLIENT.find(config.client)(task, Memory(ContextStore(RecordDict())))


def _received(
    config: RunConfig, client: FedAvgClient, message: Message
) -> tuple[Received, dict[str, Scalar]]:
    """Return a message's records and configuration, without an evaluation after training."""
    message, _ = with_chosen_model(client, message, config)
    records = {
        name: {entry: np.array(viewed(array)) for entry, array in record.items()}
        for name, record in message.content.array_records.items()
    }
    arrays = by_name(records.pop(ARRAYS), client.shared_names)
    config_record = message.content.config_records[CONFIG]
    instructions = {k: v for k, v in config_record.items() if not isinstance(v, list)}
    instructions |= {EVAL_SPLITS: "", FINE_TUNE: 0}
    return Received(arrays, records), instructions


def _seconds(do: Callable[[int], object], count: int) -> float:
    started = time.perf_counter()
    do(count)
    return time.perf_counter() - started


def describe_runs(cells: Sequence[RunToDo]) -> list[str]:
    """Return a line per run, what tells of keys that nothing reads, and an estimate of the remaining time."""
    lines, remaining = [], []
    for cell in cells:
        if cell.summary:
            lines.append(f"{cell.name}  done")
            continue
        done = cell.rounds_done if cell.started else 0
        lines.append(f"{cell.name}  {done} of {cell.config.rounds} rounds done" if done else cell.name)
        remaining.append((cell, cell.config.rounds - done))
    speeds = {kind_of(cell.config): cell.config for cell, _ in remaining}
    measured = {kind: speed_of(config) for kind, config in speeds.items()}
    seconds, unused = {}, dict[str, None]()
    for cell, rounds in remaining:
        federation = Federation(cell.config)
        seconds[cell.name] = rounds * seconds_a_round(work_of(federation), measured[kind_of(cell.config)])
        unused |= {federation.unused_line: None} if federation.unused_line else {}
    runs = number_of(len(cells), "run")
    states = f"{runs}, {len(cells) - len(remaining)} done" if len(remaining) < len(cells) else runs
    return [*lines, *unused, f"{states}; {in_words(elapsed([cell for cell, _ in remaining], seconds))} to go"]


def elapsed(cells: Sequence[RunToDo], seconds: Mapping[str, float]) -> float:
    """Estimate the seconds until all cells are done from each one's seconds on one core, by name."""
    if not cells:
        return 0.0
    first = cells[0].config
    times = [seconds[cell.name] for cell in cells]
    if first.backend == "inline":
        return sum(times)
    workers = first.workers or os.cpu_count() or 1
    clients = min(cell.config.clients_a_round for cell in cells)
    parallel = next((count(cells) for count in annexes.brought("side-by-side").values()), 0)
    in_parallel = max([sum(times[:parallel]) / workers, *times[:parallel]])
    return in_parallel + sum(times[parallel:]) / min(workers, clients)


def in_words(seconds: float) -> str:
    """Return a rounded duration in seconds, minutes or hours."""
    return f"about {duration(max(1, round(seconds)))}"
