"""pfl-research's simulation, in its one process: FedAvg on in-memory tensors, no evaluation.

It does not shuffle a client's batches, and shares no BatchNorm statistics.
"""

import time
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from .job import Job
from .recorder import Recorder

NEVER = 10**9  # rounds between evaluations; the first round, a warm-up, has one


class NetworkWithLoss(nn.Module):
    """A network with the two methods that pfl asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        self.train()
        return functional.cross_entropy(self.network(images), labels)

    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, float]:
        return {"loss": self.loss(images, labels).item()}


class RoundTimes(TrainingProcessCallback):  # type: ignore[misc]
    """Times the rounds from the end of one to the end of the next."""

    def __init__(self, job: Job) -> None:
        self.recorder = Recorder(job)
        self.started = time.perf_counter()

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
        self.recorder.add(time.perf_counter() - self.started)
        self.started = time.perf_counter()
        return False, Metrics()


def clients_of(job: Job) -> Any:
    """The clients' data, sampled at random."""
    images, labels = (torch.from_numpy(np.array(array)) for array in job.train_arrays())
    images = images.unsqueeze(1).float().div_(255)
    slices = {i: (images[job.rows(i)], labels[job.rows(i)]) for i in range(job.clients)}

    def make_client(client: int) -> Any:
        return Dataset(slices[client], user_id=str(client))

    return FederatedDataset(make_client, get_user_sampler("random", range(job.clients)))


def main() -> None:
    """Run the job and print what was measured."""
    job = Job.of_this_process()
    np.random.seed(job.seed)  # pfl draws its own seeds from it
    network = NetworkWithLoss(job.initial_model())
    central = torch.optim.SGD(network.parameters(), lr=1.0)
    clients = clients_of(job)
    times = RoundTimes(job)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=job.all_rounds,
            evaluation_frequency=NEVER,
            train_cohort_size=job.per_round,
            val_cohort_size=0,
        ),
        SimulatedBackend(clients, clients),
        PyTorchModel(network, torch.optim.SGD, central),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=job.lr, local_batch_size=job.batch),
        callbacks=[times],
        send_metrics_to_platform=False,
    )
    times.recorder.print()


if __name__ == "__main__":
    main()
