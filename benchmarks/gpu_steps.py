"""Times of a client's step on a GPU, in float32, by ways of training several clients: a table.

    python benchmarks/gpu_steps.py                     # two minutes on one H200
    python benchmarks/gpu_steps.py resnet20 --clients 7

A step is a forward and a backward pass of one batch, and SGD's update, without this project's code:

- calls: PyTorch's calls, one client after the other.
- replayed: the same, captured as a CUDA graph, so without the calls.
- branches: the steps of all clients as branches of one graph, so side by side.
- vmap: `torch.func.vmap` over the stacked networks; and the same, replayed.

Networks are untrained, on random images of 3x32x32. Times are of one client.
"""

import argparse
import time
from collections.abc import Callable

import torch
from simulation_peers.networks import cifar_resnet18, cifar_resnet18_gn
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from fedbn_flower.models import MODELS, InputSpec

SPEC = InputSpec((3, 32, 32), 10)
NETWORKS: dict[str, tuple[Callable[[InputSpec], nn.Module], int]] = {
    "simple-cnn": (MODELS["simple-cnn"], 10),
    "resnet18-gn": (cifar_resnet18_gn, 10),
    "resnet20": (MODELS["resnet20"], 32),
    "resnet18": (cifar_resnet18, 32),
}
"""Networks, with their batch."""
RATE, WARM_UP, SECONDS = 0.01, 3, 0.4


def milliseconds(work: Callable[[], object]) -> float:
    """Return the mean time of one call, over at least `SECONDS`."""
    for _ in range(WARM_UP):
        work()
    torch.cuda.synchronize()
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        work()
        count += 1
        if count % 4 == 0:  # calls must not run ahead without end
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / count * 1000


def captured(work: Callable[[], object]) -> Callable[[], object]:
    """Return what replays the work."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def descend(parameters: list[Tensor], loss: Callable[[], Tensor]) -> None:
    """Take a step."""
    for parameter in parameters:
        parameter.grad = None
    torch.autograd.backward(loss())
    with torch.no_grad():
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        torch._foreach_add_(parameters, gradients, alpha=-RATE)


def row(name: str, clients: int) -> list[float]:
    """Return the times of the five ways."""
    make, batch = NETWORKS[name]
    networks = [make(SPEC).cuda() for _ in range(clients)]
    images = torch.rand(clients, batch, *SPEC.shape, device="cuda")
    labels = torch.randint(SPEC.outputs, (clients, batch), device="cuda")

    def step(i: int) -> None:
        descend([*networks[i].parameters()], lambda: cross_entropy(networks[i](images[i]), labels[i]))

    streams = [torch.cuda.Stream() for _ in networks]  # type: ignore[no-untyped-call]

    def branches() -> None:
        trunk = torch.cuda.current_stream()
        for i, stream in enumerate(streams):
            stream.wait_stream(trunk)
            with torch.cuda.stream(stream):
                step(i)
        for stream in streams:
            trunk.wait_stream(stream)

    parameters, buffers = stack_module_state(networks)
    trained = {n: p.detach().requires_grad_() for n, p in parameters.items()}
    outputs = vmap(lambda p, b, x: functional_call(networks[0], (p, b), (x,)))

    def mapped() -> None:
        descend(
            [*trained.values()],
            lambda: (
                cross_entropy(outputs(trained, buffers, images).flatten(0, 1), labels.flatten()) * clients
            ),
        )

    one, all_ways = (
        [lambda: step(0), captured(lambda: step(0))],
        [captured(branches), mapped, captured(mapped)],
    )
    return [*map(milliseconds, one), *(milliseconds(way) / clients for way in all_ways)]


def main() -> None:
    """Print the table, a row a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", default=[*NETWORKS])
    parser.add_argument("--clients", type=int, default=7)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    print(
        "| network, batch | calls | replayed | branches | vmap | vmap, replayed |\n|---|---|---|---|---|---|"
    )
    for name in options.networks:
        times = " | ".join(f"{ms:.3f}" for ms in row(name, options.clients))
        print(f"| `{name}`, {NETWORKS[name][1]} | {times} |", flush=True)


if __name__ == "__main__":
    main()
