"""This project, on Ray or as its ``backend`` key says.

No timed round evaluates, since no other side does, unless the job has clients evaluate. The last round, which
is not timed, always evaluates. What comes to the driver is counted as its grid hands it on.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from flwr.app import Message, MessageType, UserConfig

from fedbn_flower.config.making import run_config
from fedbn_flower.config.run_config import RunConfig
from fedbn_flower.records.events import Observer, RoundResult
from fedbn_flower.runtime.grid import LocalGrid
from fedbn_flower.runtime.pools import pool_for
from fedbn_flower.runtime.simulation import make_grid
from fedbn_flower.server.federation import Federation

from .job import Job
from .recorder import Recorder


class RoundTimes(Observer):
    """An observer that times the rounds, from the end of one to the end of the next, as pfl's side does.

    It takes no round that lacks an answer.

    Parameters
    ----------
    job : Job
        What is run.
    grid : LocalGrid
        The grid it is run on; from now on the answers to training are counted as they leave it.
    """

    def __init__(self, job: Job, grid: LocalGrid) -> None:
        self.job = job
        self.recorder = Recorder(job)
        self.received = 0
        self.ended = perf_counter()
        self.work = grid.work
        grid.work = self.counted_work  # type: ignore[method-assign]

    def counted_work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        """`LocalGrid.work`."""
        for reply in self.work(messages, timeout):
            if reply.metadata.message_type.startswith(MessageType.TRAIN) and reply.has_content():
                records = reply.content.array_records.values()
                self.received += sum(len(array.data) for record in records for array in record.values())
            yield reply

    def on_round(self, result: RoundResult) -> None:
        measured = self.recorder.measured
        measured.received, self.received = max(measured.received, self.received), 0
        if len(result.train.metrics) != self.job.per_round or result.failures:
            failures = {**result.train.failures, **result.evaluate.failures}
            raise RuntimeError(f"{len(result.train.metrics)} answers: {failures}")
        if (
            result.splits
            and not self.job.evaluating
            and not self.job.central
            and result.server_round < self.job.all_rounds
        ):
            raise RuntimeError(f"round {result.server_round} evaluated, which no other side does")
        measured.loss = (result.global_metrics or {}).get("loss", measured.loss)
        now = perf_counter()
        self.recorder.add(now - self.ended)
        self.ended = now


def config_of(job: Job) -> RunConfig:
    """The job in the words of the configuration."""
    values: UserConfig = {
        "strategy": "fedavg", "client": "shared", "objective": "sgd", "model": job.model,
        "dataset": job.data, "cache-dir": str(Path(job.data).parent / "cache"), "partition": "iid",
        "num-clients": job.clients, "fraction-train": job.per_round / job.clients,
        "fraction-evaluate": job.evaluating, "rounds": job.all_rounds, "local-epochs": 1,
        "batch-size": job.batch, "client-lr": job.lr, "seed": job.seed, "checkpoint-every": 0,
        "evaluate-every": 1 if job.evaluating or job.central else job.all_rounds,
        "backend": job.backend, "workers": job.workers, "device": job.device,
    }  # fmt: skip
    if job.lockstep:
        values["lockstep"] = job.lockstep
    return run_config(values)


def main() -> None:
    """Run the job and print what was measured."""
    job = Job.of_this_process()
    federation = Federation(config_of(job))
    pool = pool_for(federation.config)
    try:
        grid = make_grid(federation, pool)
        times = RoundTimes(job, grid)
        federation.run(grid, [times])
    finally:
        if pool:
            pool.close()
    times.recorder.print()


if __name__ == "__main__":
    main()
