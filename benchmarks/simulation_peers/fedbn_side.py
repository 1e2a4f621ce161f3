"""This project on its Ray pool.

A round's seconds end before the server evaluates the new model, which no other side does; the test set is
kept small (1,000 images) all the same, so that a run takes no longer for it.
"""

from pathlib import Path

from flwr.app import UserConfig

from fedbn_flower.config import RunConfig
from fedbn_flower.rounds import Federation, Observer, RoundResult
from fedbn_flower.runtime.pool import RayPool
from fedbn_flower.simulation import make_grid

from .job import Job
from .recorder import Recorder


class RoundTimes(Observer):
    """An observer that hands the rounds' seconds on, and takes no round that lacks an answer."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.recorder = Recorder(job)

    def on_round(self, result: RoundResult) -> None:
        if len(result.train.metrics) != self.job.per_round:
            raise RuntimeError(f"{len(result.train.metrics)} answers: {result.train.failures}")
        self.recorder.add(result.seconds)


def config_of(job: Job) -> RunConfig:
    """The job in the words of the configuration."""
    values: UserConfig = {
        "strategy": "fedavg", "client": "fedavg", "objective": "sgd", "model": job.model,
        "dataset": job.data, "cache-dir": str(Path(job.data).parent / "cache"), "partition": "iid",
        "num-clients": job.clients, "fraction-train": job.per_round / job.clients, "fraction-evaluate": 0,
        "rounds": job.all_rounds, "local-epochs": 1, "batch-size": job.batch, "client-lr": job.lr,
        "seed": job.seed, "checkpoint-every": 0,
    }  # fmt: skip
    if job.lockstep:
        values["lockstep"] = job.lockstep
    return RunConfig.of(values)


def main() -> None:
    """Run the job and print what was measured."""
    job = Job.of_this_process()
    federation = Federation(config_of(job))
    pool = RayPool(job.workers, verbose=False)
    try:
        grid = make_grid(federation, pool)
        times = RoundTimes(job)
        federation.run(grid, [times])
    finally:
        pool.close()
    times.recorder.print()


if __name__ == "__main__":
    main()
