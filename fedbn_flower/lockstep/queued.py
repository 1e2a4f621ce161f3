"""Train the clients of a cohort one after the other on a GPU that never waits for the processor.

Each has a model of its own. All are started, and while the GPU trains the second, the processor checks and
sums what the first has to send. A client's steps are those of one by one, and so are its bits.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache

import torch
from flwr.common import NDArrays, Scalar
from torch import nn

from fedbn_flower.clients.base import FedAvgClient
from fedbn_flower.clients.modules.first_values import begin_anew, keep_first_values
from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.clients.training import start_training
from fedbn_flower.clients.update import Received, Update
from fedbn_flower.core.ground.settings import overridden

from .kept import on_cpu


def reason_not_queued(client: type[FedAvgClient]) -> str:
    """Return the reason that clients cannot be queued, or "" if there is none."""
    own = overridden(client, FedAvgClient, ["fit", "train"])
    return next((f"client {client.__name__} overrides {name}" for name in own), "")


@usual_surroundings()
def start_queued(
    clients: Sequence[FedAvgClient], parameters: NDArrays, config: dict[str, Scalar]
) -> list[Callable[[], Update]]:
    """Start ``client.fit(parameters, config)`` of each client. Return what waits for each one's result.

    All clients get the same parameters and config, and share one model object, in whose place each gets a
    copy. The arrays of the results are valid until the next call.

    Raises
    ------
    torch.OutOfMemoryError
        When the GPU has no room for all models.
    """
    try:
        for client, model in zip(clients, copies(clients[0].task.model, len(clients)), strict=True):
            client.task = replace(client.task, model=model)
        _load(clients, parameters)
        return [_started(client, parameters, config) for client in clients]
    except torch.OutOfMemoryError:
        copies.cache_clear()
        raise


def _load(clients: Sequence[FedAvgClient], parameters: NDArrays) -> None:
    """Load every client's model; without local entries, all begin with the same."""
    first, *others = clients
    entries = first.task.model.state_dict()
    first.load(entries, parameters)
    for other in others:
        own = other.task.model.state_dict()
        if other.local_names:
            other.load(own, parameters)
        else:
            begin_anew(other.task.model)
            torch._foreach_copy_([*own.values()], [*entries.values()])


def _started(client: FedAvgClient, parameters: NDArrays, config: dict[str, Scalar]) -> Callable[[], Update]:
    """Start what `FedAvgClient.fit` does once a model is loaded; a failure comes with the result."""
    model, device = client.task.model, client.task.train.device
    entries = model.state_dict()
    records = parameters.records if isinstance(parameters, Received) else {}

    def failed() -> Update:
        raise failure

    try:
        _send_examples(client)
        run = client.begin_run(dict(model.named_parameters()), config, records)
        before = client.before_training(entries, config)
        trained = start_training(model, run)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a failure of one client must not affect others
        failure = error
        return failed
    done = _mark(device)

    def result() -> Update:
        with _aside(device, done):
            return client.end_run(run, {**trained(), **before}, entries, config, on_cpu(model))

    return result


def _send_examples(client: FedAvgClient) -> None:
    """Send the examples that stay on a GPU, without waiting for the training of others there."""
    train = client.task.train
    with _aside(train.device):
        sent = train.held
    if sent:
        torch.cuda.current_stream().wait_stream(_side())


@lru_cache(maxsize=2)
def copies(model: nn.Module, count: int) -> list[nn.Module]:
    """Return ``count`` copies of a model. The result is cached."""
    begin_anew(model)
    made = [copy.deepcopy(model) for _ in range(count)]
    for one in made:
        keep_first_values(one)
    return made


def _mark(device: str) -> torch.cuda.Event | None:
    """Return an event that is over once a GPU has done what was asked of it."""
    if torch.device(device).type == "cpu":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


@contextmanager
def _aside(device: str, after: torch.cuda.Event | None = None) -> Iterator[None]:
    """Have a GPU do what is asked of it in this block beside the training, once an event is over."""
    if torch.device(device).type == "cpu":
        yield
        return
    if after:
        _side().wait_event(after)
    with torch.cuda.stream(_side()):
        yield


@cache
def _side() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]
