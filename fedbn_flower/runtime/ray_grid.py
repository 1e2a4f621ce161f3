"""Clients in Ray actors: each client is pinned to one worker, where its memory and data stay warm."""

import logging
import os
from pathlib import Path
from typing import Any

import ray
from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.app.message import remove_content_from_message
from ray.exceptions import GetTimeoutError, RayActorError

from clients import ClientState

from ..client_app import app
from ..errors import RunFailed
from .grid import FIRST_NODE_ID, Answer, LocalGrid, answer, identify_process, node_context

ROOT = str(Path(__file__).resolve().parents[2])


class Worker:
    """Runs the ClientApp for the clients pinned to it."""

    def __init__(self) -> None:
        identify_process()
        self._contexts: dict[int, Context] = {}
        self._run_config: UserConfig = {}
        self._num_clients = 0

    def process_id(self) -> int:
        """This worker's process."""
        return os.getpid()

    def start_run(self, run_config: UserConfig, num_clients: int) -> None:
        """Forget the clients of an earlier run."""
        self._contexts = {}
        self._run_config = run_config
        self._num_clients = num_clients

    def handle(self, message: Message, content: RecordDict) -> Message:
        """The ClientApp's reply to a message, whose content came through the object store."""
        message.content = content
        return answer(app, message, self._context(message.metadata.dst_node_id - FIRST_NODE_ID))

    def client_state(self, partition_id: int) -> bytes:
        """A client's memory."""
        return ClientState(self._context(partition_id).state).to_bytes()

    def restore_client(self, partition_id: int, state: bytes) -> None:
        """Put a client's memory back."""
        ClientState(self._context(partition_id).state).from_bytes(state)

    def _context(self, partition_id: int) -> Context:
        if partition_id not in self._contexts:
            context = node_context(partition_id, self._num_clients, self._run_config)
            self._contexts[partition_id] = context
        return self._contexts[partition_id]


class RayPool:
    """A Ray instance of its own with so many workers, ended by `close`.

    Parameters
    ----------
    workers : int
        Actors of one core each; 0 for one a core of this machine.
    verbose : bool
        Whether Ray's own log lines are shown.
    """

    def __init__(self, workers: int, verbose: bool) -> None:
        count = workers or os.cpu_count() or 1
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        ray.init(
            address="local",  # never somebody's running cluster
            num_cpus=count,
            include_dashboard=False,
            log_to_driver=verbose,
            logging_level=logging.INFO if verbose else logging.ERROR,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
        actor = ray.remote(num_cpus=1, max_restarts=0)(Worker)
        self.workers: list[Any] = [actor.remote() for _ in range(count)]

    def start_run(self, run_config: UserConfig, num_clients: int) -> None:
        """Have every worker begin a run with empty client memories."""
        ray.get([w.start_run.remote(run_config, num_clients) for w in self.workers])

    def close(self) -> None:
        """End Ray and every process it started."""
        ray.shutdown()


class RayGrid(LocalGrid):
    """Sends messages to the pool's workers; the content of a round's messages is stored once.

    Raises
    ------
    RunFailed
        When a worker dies.
    """

    def __init__(self, pool: RayPool, num_clients: int, run_config: UserConfig) -> None:
        super().__init__(num_clients)
        self._workers = pool.workers
        self._stored: tuple[RecordDict | None, Any] = (None, None)
        pool.start_run(run_config, num_clients)

    def _worker(self, partition_id: int) -> Any:
        return self._workers[partition_id % len(self._workers)]

    def client_state(self, partition_id: int) -> bytes:
        state: bytes = ray.get(self._worker(partition_id).client_state.remote(partition_id))
        return state

    def restore_client(self, partition_id: int, state: bytes) -> None:
        ray.get(self._worker(partition_id).restore_client.remote(partition_id, state))

    def submit(self, message: Message) -> Answer:
        if self._stored[0] is not message.content:
            self._stored = message.content, ray.put(message.content)
        envelope = remove_content_from_message(message)
        worker = self._worker(message.metadata.dst_node_id - FIRST_NODE_ID)
        future = worker.handle.remote(envelope, self._stored[1])

        def reply(timeout: float | None) -> Message | None:
            try:
                answered: Message = ray.get(future, timeout=timeout)
            except GetTimeoutError:
                return None
            except RayActorError as error:
                raise RunFailed(
                    "a Ray worker died, and its clients' memories with it; "
                    "--resume goes on from the last checkpoint"
                ) from error
            return answered

        return reply
