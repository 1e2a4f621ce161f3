"""FedAvg and the 2NN of McMahan et al. 2017 on MNIST, with nothing of this project: a second opinion.

    python experiments/plain_fedavg.py path/to/mnist --partition shards --rate 0.2

100 clients, 10 a round, one local epoch, batches of 10; prints the first round with 97 % of the test set.
"""

import argparse

import datasets
import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

CLIENTS, A_ROUND, BATCH = 100, 10, 10


def read(path: str, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat images in [0, 1] and their labels."""
    rows = datasets.load_dataset(path, split=split).with_format("numpy")
    return torch.from_numpy(rows["image"][:]).flatten(1).float() / 255, torch.from_numpy(rows["label"][:])


def partition(kind: str, labels: torch.Tensor, rng: np.random.Generator) -> list[np.ndarray]:
    """Each client's rows: as many of any, or two of 200 shards of the rows in the order of their labels."""
    if kind == "iid":
        return np.array_split(rng.permutation(len(labels)), CLIENTS)
    shards = np.array_split(np.argsort(labels.numpy(), kind="stable"), 2 * CLIENTS)
    return [np.concatenate([shards[s] for s in two]) for two in rng.permutation(2 * CLIENTS).reshape(-1, 2)]


def main() -> None:
    """Train until the target is reached."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--partition", choices=["iid", "shards"], default="iid")
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--target", type=float, default=0.97)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    rng = np.random.default_rng(chosen.seed)
    (images, labels), (test_images, test_labels) = read(chosen.path, "train"), read(chosen.path, "test")
    shares = partition(chosen.partition, labels, rng)
    model = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    shared = parameters_to_vector(model.parameters()).detach()
    for round_ in range(1, chosen.rounds + 1):
        clients = [shares[client] for client in rng.choice(CLIENTS, A_ROUND, replace=False)]
        mean = torch.zeros_like(shared)
        for share in clients:
            vector_to_parameters(shared.clone(), model.parameters())  # they are views of what they are given
            optimizer = torch.optim.SGD(model.parameters(), lr=chosen.rate)
            for batch in np.array_split(rng.permutation(share), len(share) // BATCH):
                optimizer.zero_grad()
                cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()
            mean += parameters_to_vector(model.parameters()).detach() * len(share) / sum(map(len, clients))
        shared = mean
        vector_to_parameters(shared, model.parameters())
        with torch.no_grad():
            accuracy = (model(test_images).argmax(1) == test_labels).double().mean().item()
        if accuracy >= chosen.target:
            print(f"{accuracy:.4f} after round {round_}")
            return
    print(f"never {chosen.target} in {chosen.rounds} rounds")


if __name__ == "__main__":
    main()
