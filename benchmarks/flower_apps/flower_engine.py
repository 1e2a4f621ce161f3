"""Run an app on Flower's simulation engine without a SuperLink and without Ray: one process for the clients.

    python benchmarks/flower_apps/flower_engine.py FOLDER NODES [RUN_CONFIG]

Everything else is Flower's own: the ServerApp on its thread, the InMemoryGrid, the state, the queues. It
starts in seconds, and says what the engine makes of an app; how fast Flower is, only ``flwr run`` says.
"""

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import ClientAppException, LoadClientAppError
from flwr.common.config import fuse_dicts, get_fused_config_from_dir, get_project_config, parse_config_args
from flwr.server.superlink.fleet.vce.backend import raybackend
from flwr.server.superlink.fleet.vce.backend.backend import Backend
from flwr.simulation.run_simulation import _run_simulation
from flwr.supercore.constant import NOOP_FEDERATION_ID
from flwr.supercore.object_ref import load_app
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supercore.telemetry import EventType

RUN = 1


def answer(reference: str, folder: str, message: Message, context: Context) -> tuple[Message, Context]:
    """Answer a message as Flower's actor does."""
    app = load_app(reference, LoadClientAppError, folder)
    try:
        return app(message=message, context=context), context
    except Exception as error:
        raise ClientAppException(str(error)) from error


class OneProcess(Backend):
    """Runs clients in one other process, as Flower's backend of one Ray actor would."""

    reference, folder = "", ""

    def __init__(self, backend_config: Any) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    @property
    def num_workers(self) -> int:
        return 1

    def is_worker_idle(self) -> bool:
        return True

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        """Nothing is built: the process loads the app itself."""

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        return self._pool.submit(answer, self.reference, self.folder, message, context).result()

    def terminate(self) -> None:
        self._pool.shutdown()


def main(folder: Path, nodes: int, overrides: list[str]) -> None:
    """Run the app."""
    components = get_project_config(folder)["tool"]["flwr"]["app"]["components"]
    config = fuse_dicts(get_fused_config_from_dir(folder, {}), parse_config_args(overrides))
    OneProcess.reference, OneProcess.folder = components["clientapp"], str(folder)
    raybackend.RayBackend = OneProcess  # type: ignore[misc,assignment]
    run = Run.create_empty(RUN)
    run.primary_task_id, run.federation_id, run.override_config = 1, NOOP_FEDERATION_ID, config
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, 1, 1
    _run_simulation(
        num_supernodes=nodes,
        exit_event=EventType.FLWR_SIMULATION_RUN_LEAVE,
        client_app_attr=components["clientapp"],
        server_app_attr=components["serverapp"],
        server_app_context=Context(RUN, 1, {}, RecordDict(), config),
        app_dir=str(folder),
        run=run,
        is_app=True,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), sys.argv[3:])
