"""Flower's own simulation, with its FedAvg and the client of its quickstart."""

import logging
import time
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

# The ClientApp is in a module of its own: one in this script would be pickled by value with every message.
from .flower_client import app as client_app
from .job import Job, count_correct, mean_loss
from .recorder import Recorder


class TimedFedAvg(FedAvg):
    """FedAvg that times its rounds, and takes no round that lacks an answer."""

    def __init__(self, job: Job) -> None:
        super().__init__(
            fraction_train=job.per_round / job.clients,
            fraction_evaluate=0.0,
            min_train_nodes=job.per_round,
            min_available_nodes=job.clients,
        )
        self.job = job
        self.recorder = Recorder(job)
        self.started = 0.0
        self.tests = job.test_tensors()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.started = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        received = list(replies)
        aggregated = super().aggregate_train(server_round, received)
        if not self.job.central:
            self.recorder.add(time.perf_counter() - self.started)
        failed = [reply.error.reason for reply in received if reply.has_error()]
        if failed or len(received) != self.job.per_round:
            raise RuntimeError(f"{len(received)} answers, of which failed: {failed}")
        return aggregated

    def evaluate_global(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        """The quickstart's ``global_evaluate``, on tensors in memory."""
        net = self.job.initial_model()
        net.load_state_dict(arrays.to_torch_state_dict())
        correct = count_correct(net, *self.tests)
        if server_round:
            self.recorder.add(time.perf_counter() - self.started)
        return MetricRecord({"accuracy": correct / len(self.tests[1])})

    def loss_of(self, arrays: ArrayRecord) -> float:
        """The mean loss of a model on the test images."""
        net = self.job.initial_model()
        net.load_state_dict(arrays.to_torch_state_dict())
        return mean_loss(net, *self.tests)


def main() -> None:
    """Run the job and print what was measured."""
    job = Job.of_this_process()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    server_app = ServerApp()

    @server_app.main()
    def run_server(grid: Grid, context: Context) -> None:
        strategy = TimedFedAvg(job)
        initial = ArrayRecord(job.initial_model().state_dict())
        train_config = ConfigRecord({"job": job.to_json()})
        evaluate = strategy.evaluate_global if job.central else None
        ended = strategy.start(grid, initial, job.all_rounds, train_config=train_config, evaluate_fn=evaluate)
        strategy.recorder.measured.loss = strategy.loss_of(ended.arrays)
        strategy.recorder.print()

    run_simulation(
        server_app,
        client_app,
        job.clients,
        backend_config={
            "init_args": {
                "num_cpus": job.workers,
                "log_to_driver": False,
                "logging_level": logging.ERROR,
            },
            "client_resources": {"num_cpus": 1, "num_gpus": (job.device == "cuda") / job.workers},
        },
    )


if __name__ == "__main__":
    main()
