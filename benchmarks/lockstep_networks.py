"""Which networks train in lockstep, and how far they are from one by one: a table.

    python benchmarks/lockstep_networks.py                       # all; some minutes on a core
    python benchmarks/lockstep_networks.py resnet18 timm:mixer_s32_224

Networks are untrained, of ten classes, on random inputs, as with ``--fast always``. Where the trial before a
run agrees, two clients of 8 and 6 examples take a step at learning rate 0.01, both ways: the table has the
largest difference over all entries, each relative to its largest value.
"""

import sys
from typing import Any, cast

import numpy as np
import timm
import torch
import torchvision.models
from flwr.common import Scalar
from numpy.typing import NDArray
from torch import nn

from fedbn_flower.clients import (
    Classification,
    ContextStore,
    Examples,
    FedAvgClient,
    LocalTask,
    LocalTraining,
    Memory,
    NextCharacter,
    Problem,
    Segmentation,
    Update,
)
from fedbn_flower.lockstep import fit_in_lockstep, reason_not_equivalent, reason_not_supported
from fedbn_flower.lockstep.stacked_modules import takes_stacked_layers
from fedbn_flower.models import MODELS, InputSpec

IMAGES = InputSpec((3, 32, 32), 10)
SPECS = {
    "unet": InputSpec((3, 32, 32), 10, "masks"),
    "unet-3d": InputSpec((1, 8, 8, 8), 10, "masks"),
    "char-lstm": InputSpec((12,), 10, "characters"),
    "char-lstm-small": InputSpec((12,), 10, "characters"),
}
PROBLEMS: dict[str, type[Problem]] = {"masks": Segmentation, "characters": NextCharacter}
SETTINGS: dict[str, dict[str, Any]] = {
    "VisionTransformer": {
        "image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 3, "hidden_dim": 192, "mlp_dim": 768,
    },
    "timm:deit_tiny_patch16_224": {"img_size": 32, "patch_size": 8},
    "timm:mixer_s32_224": {"img_size": 32},
    "timm:swin_tiny_patch4_window7_224": {
        "img_size": 32, "patch_size": 2, "window_size": 4, "depths": (1, 1, 1, 1), "drop_path_rate": 0.0,
    },
}  # fmt: skip
TORCHVISION = (
    "resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "densenet121", "efficientnet_b0",
    "VisionTransformer", "swin_t", "regnet_y_400mf", "convnext_tiny",
)  # fmt: skip
TIMM = (
    "convnext_atto", "deit_tiny_patch16_224", "edgenext_xx_small", "efficientnet_lite0", "ghostnet_050",
    "lcnet_035", "mixer_s32_224", "mobilenetv3_small_050", "mobilevit_xxs", "poolformer_s12", "regnetx_002",
    "repvgg_a0", "resnet10t", "swin_tiny_patch4_window7_224",
)  # fmt: skip
NAMES = [*MODELS, *TORCHVISION, *(f"timm:{name}" for name in TIMM)]


def network(name: str, spec: InputSpec) -> nn.Module:
    """Return a network of the package, of torchvision, or of timm."""
    if name in MODELS:
        return MODELS[name](spec)
    settings = {"num_classes": spec.outputs, **SETTINGS.get(name, {})}
    if name.startswith("timm:"):
        made: nn.Module = timm.create_model(name.removeprefix("timm:"), **settings)
    else:
        made = getattr(torchvision.models, name)(**settings)
    return made


def clients_of(model: nn.Module, spec: InputSpec) -> list[FedAvgClient]:
    """Return two clients of 8 and 6 random examples, which share the model."""
    rng = np.random.default_rng(0)
    initial = {name: entry.numpy().copy() for name, entry in model.state_dict().items()}
    clients = []
    for i, size in enumerate((8, 6)):
        inputs: NDArray = rng.random((size, *spec.shape), np.float32)
        if spec.predicts == "characters":
            inputs = rng.integers(spec.outputs, size=(size, *spec.shape))
        of_each = {"masks": spec.shape[1:], "characters": spec.shape}.get(spec.predicts, ())
        examples = Examples({"x": inputs, "y": rng.integers(10, size=(size, *of_each))}, np.arange(size))
        problem = PROBLEMS.get(spec.predicts, Classification)()
        task = LocalTask(model, initial, examples, {}, LocalTraining(), (0, i), problem=problem)
        clients.append(FedAvgClient(task, Memory(ContextStore())))
    return clients


def largest_difference(clients: list[FedAvgClient]) -> float:
    """Return how far lockstep is from one by one after a step, relative to each entry's largest value."""
    received = [np.array(clients[0].task.initial[name]) for name in clients[0].shared_names]
    config: dict[str, Scalar] = {"server-round": 1, "client-lr": 0.01, "eval-splits": ""}
    updates = cast(list[Update], fit_in_lockstep(clients, received, config))
    together = [[np.array(a) for a in one.arrays] for one in updates]
    alone = [[np.array(a) for a in one.fit(received, config).arrays] for one in clients]
    return max(
        float(np.abs(x - y).max() / max(np.abs(y).max(), 0.1))
        for one, other in zip(together, alone, strict=True)
        for x, y in zip(one, other, strict=True)
    )


def main() -> None:
    """Print the table, a row a network."""
    print("| network | parameters | trains | largest difference |\n| --- | --- | --- | --- |")
    for name in sys.argv[1:] or NAMES:
        torch.manual_seed(0)
        spec = SPECS.get(name, IMAGES)
        model = network(name, spec)
        clients = clients_of(model, spec)
        task = clients[0].task
        how, difference = "stacked" if takes_stacked_layers(model) else "vmap", ""
        if why := reason_not_supported(FedAvgClient, task, True) or reason_not_equivalent(
            FedAvgClient, task, {}
        ):
            how = f"one by one: {why.partition('. ')[0]}"
        else:
            difference = f"{largest_difference(clients):.0e}"
        weights = sum(p.numel() for p in model.parameters())
        print(f"| `{name}` | {weights:,} | {how} | {difference} |", flush=True)


if __name__ == "__main__":
    main()
