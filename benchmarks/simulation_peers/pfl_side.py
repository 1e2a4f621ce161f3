"""pfl-research's simulation, in a process for each worker: FedAvg on in-memory tensors.

As in its documentation torchrun starts them: each trains its share of a round's clients, on all the data
and a network of its own, and the sums go from process to process by gloo. The first one measures. It does
not shuffle a client's batches, and shares no BatchNorm statistics.
"""

import os
import sys
import time
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, distributed, nn
from torch.distributed.run import main as torchrun
from torch.nn import functional

from .job import EVALUATED, Job, count_correct, mean_loss
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

    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Any]:
        return {"accuracy": Weighted(count_correct(self.network, images, labels), len(labels))}


class RoundTimes(TrainingProcessCallback):  # type: ignore[misc]
    """Times the rounds from the end of one to the end of the next."""

    def __init__(self, job: Job) -> None:
        self.recorder = Recorder(job, above=os.getppid())
        self.started = time.perf_counter()

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
        self.recorder.add(time.perf_counter() - self.started)
        self.started = time.perf_counter()
        return False, Metrics()


def clients_of(job: Job, trained: list[int]) -> Any:
    """The clients' data, sampled at random; whoever is to train is noted in ``trained``."""
    images, labels = (torch.from_numpy(np.array(array)) for array in job.train_arrays())
    images, labels = images.float().div_(255).to(job.device), labels.to(job.device)
    slices = {i: (images[job.rows(i)], labels[job.rows(i)]) for i in range(job.clients)}

    def make_client(client: int) -> Any:
        trained.append(client)
        return Dataset(slices[client], user_id=str(client))

    return FederatedDataset(make_client, get_user_sampler("random", range(job.clients)))


def check_shares(job: Job, trained: list[int], network: nn.Module) -> None:
    """Refuse a run in which a process did less than its share, or ended with another model."""
    weights = nn.utils.parameters_to_vector(network.parameters()).detach().cpu()
    ended: list[Any] = [None] * job.workers
    distributed.all_gather_object(ended, (len(trained), weights.numpy().tobytes()))
    counts, models = zip(*ended, strict=True)
    if min(counts) < job.per_round // job.workers * job.all_rounds or len(set(models)) > 1:
        raise RuntimeError(f"{counts} clients were trained, to {len(set(models))} models")


def main() -> None:
    """Run the job and print what was measured; without torchrun, start it."""
    job = Job.of_this_process()
    if not distributed.is_torchelastic_launched():
        torchrun([f"--nproc-per-node={job.workers}", "--standalone", "-m", __spec__.name, *sys.argv[1:]])
        return
    np.random.seed(job.seed)  # pfl draws its own seeds from it
    network = NetworkWithLoss(job.initial_model()).to(job.device)
    central = torch.optim.SGD(network.parameters(), lr=1.0)
    trained: list[int] = []
    clients = clients_of(job, trained)
    times = RoundTimes(job)
    evaluation = NNEvalHyperParams(local_batch_size=EVALUATED)
    central_evaluation = [CentralEvaluationCallback(Dataset(job.test_tensors()), evaluation)] * job.central
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
        callbacks=[*central_evaluation, times],
        send_metrics_to_platform=False,
    )
    check_shares(job, trained, network)
    if distributed.get_rank() == 0:
        times.recorder.measured.loss = mean_loss(network.network.cpu(), *job.test_tensors())
        times.recorder.print()


if __name__ == "__main__":
    main()
