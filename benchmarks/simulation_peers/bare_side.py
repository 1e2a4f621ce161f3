"""A bare PyTorch loop, one process a core: the limit of what a simulation on PyTorch modules can reach.

No messages, no checks: the data are float32 tensors in memory that the processes share, the model goes out
and the weighted sums come back through shared memory, and clients are dealt out evenly.
"""

import time
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import Tensor, multiprocessing
from torch.nn import functional

from .job import Job, count_correct, mean_loss
from .recorder import Recorder

State = dict[str, Tensor]


def share(tensor: Tensor) -> Tensor:
    """The tensor, moved to memory that processes share."""
    moved: Tensor = tensor.share_memory_()  # type: ignore[no-untyped-call]
    return moved


def work(
    job: Job, images: Tensor, labels: Tensor, shared: State, total: State, pipe: Connection, place: int
) -> None:
    """Train the clients whose numbers arrive, and leave the weighted sum of their models in ``total``.

    A None asks for the evaluation of the shared model on this process's share of the test images.
    """
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    model = job.initial_model().to(job.device)
    images, labels = images.to(job.device), labels.to(job.device)
    state = model.state_dict()
    sums = {name: torch.zeros_like(entry, dtype=torch.float32) for name, entry in state.items()}
    tests = [part[place :: job.workers] for part in job.test_tensors()] if job.central else []
    while (clients := pipe.recv()) != []:
        if clients is None:
            model.load_state_dict(shared)
            pipe.send(count_correct(model, *tests))
            continue
        model.train()
        for summed in sums.values():
            summed.zero_()
        for client in clients:
            for name, entry in state.items():
                entry.copy_(shared[name])
            rows = job.rows(client)
            train_client(job, model, images[rows], labels[rows])
            for name, entry in state.items():
                sums[name].add_(entry, alpha=job.images)
        for name, summed in sums.items():
            total[name].copy_(summed)
        pipe.send(len(clients) * job.images)


def train_client(job: Job, model: torch.nn.Module, images: Tensor, labels: Tensor) -> None:
    """One epoch of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=job.lr)
    order = torch.randperm(len(labels)).to(labels.device)
    for start in range(0, len(labels), job.batch):
        batch = order[start : start + job.batch]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[batch]), labels[batch])
        torch.autograd.backward(loss)
        optimizer.step()


class Pool:
    """The processes, each with a pipe and its sum."""

    def __init__(self, job: Job, shared: State) -> None:
        uint8, int64 = job.train_arrays()
        images = share(torch.from_numpy(np.array(uint8)).float().div_(255))
        labels = share(torch.from_numpy(np.array(int64)))
        context = multiprocessing.get_context("spawn")
        self.shared = shared
        self.pipes: list[Connection] = []
        self.totals: list[State] = []
        for place in range(job.workers):
            total = {name: share(torch.zeros(entry.shape)) for name, entry in shared.items()}
            pipe, end = context.Pipe()
            arguments = (job, images, labels, shared, total, end, place)
            context.Process(target=work, args=arguments, daemon=True).start()
            self.pipes.append(pipe)
            self.totals.append(total)

    def train(self, clients: list[int]) -> None:
        """One round of FedAvg."""
        for i, pipe in enumerate(self.pipes):
            pipe.send(clients[i :: len(self.pipes)])
        weight = sum(pipe.recv() for pipe in self.pipes)
        for name, entry in self.shared.items():
            entry.copy_(sum((total[name] for total in self.totals), torch.zeros(())) / weight)

    def evaluate(self) -> int:
        """Return how many test images the shared model classifies correctly."""
        for pipe in self.pipes:
            pipe.send(None)
        return sum(pipe.recv() for pipe in self.pipes)

    def close(self) -> None:
        """End the processes."""
        for pipe in self.pipes:
            pipe.send([])


def main() -> None:
    """Run the job and print what was measured."""
    job = Job.of_this_process()
    shared = {name: share(entry) for name, entry in job.initial_model().state_dict().items()}
    pool = Pool(job, shared)
    rng = np.random.default_rng(job.seed)
    recorder = Recorder(job)
    for _ in range(job.all_rounds):
        started = time.perf_counter()
        pool.train(rng.choice(job.clients, job.per_round, replace=False).tolist())
        if job.central:
            pool.evaluate()
        recorder.add(time.perf_counter() - started)
    pool.close()
    model = job.initial_model()
    model.load_state_dict(shared)
    recorder.measured.loss = mean_loss(model, *job.test_tensors())
    recorder.print()


if __name__ == "__main__":
    main()
