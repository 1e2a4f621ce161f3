"""Draw the problem of BatchNorm in one picture: what four sites put into one BatchNorm layer.

    python experiments/batchnorm_picture.py docs/images/batchnorm.svg

After five rounds of FedAvg on the four scanners, the inputs of one of the layer's features at each site, and
the mean and the deviation by which the shared model normalises them. Its means differ most between sites.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot
from scipy.stats import gaussian_kde

from fedbn_flower import simulate
from fedbn_flower.config.making import run_config
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.site.inputs import local_task

KEYS = {"dataset": "scanners", "strategy": "fedavg", "client": "shared", "model": "mlp-bn", "rounds": 5}
COLOURS = ("#3730a3", "#b45309", "#166534", "#be123c")


def main(path: Path) -> None:
    """Train, and draw to a file."""
    with tempfile.TemporaryDirectory() as folder:
        model = simulate(**KEYS, backend="inline", progress=False, run_dir=f"{folder}/run").model()
    config = run_config(KEYS)
    inner = {}
    for partition, name in enumerate(inputs_of(config).client_names):
        train = local_task(config, partition, {}).train
        images, _ = train.prepared(np.arange(len(train)))
        with torch.no_grad():
            inner[name] = model[1](images.flatten(1)).numpy()
    layer = model[2]
    means = np.stack([values.mean(0) for values in inner.values()])
    feature = int((means.std(0) / layer.running_var.sqrt().numpy()).argmax())
    mean, deviation = layer.running_mean[feature].item(), layer.running_var[feature].sqrt().item()
    mpl.rcParams.update({"svg.hashsalt": "batchnorm", "svg.fonttype": "none", "font.size": 9})
    figure, axes = pyplot.subplots(figsize=(6.4, 2.8), layout="constrained")
    seen = np.concatenate([values[:, feature] for values in inner.values()])
    grid = np.linspace(seen.min(), seen.max(), 300)
    axes.axvspan(
        mean - deviation, mean + deviation, color="#94a3b8", alpha=0.3, label="shared mean ± deviation"
    )
    axes.axvline(mean, color="#475569", linestyle="--", linewidth=1)
    for (name, values), colour in zip(inner.items(), COLOURS, strict=True):
        axes.plot(grid, gaussian_kde(values[:, feature])(grid), color=colour, label=name)
    axes.set(xlabel="input of one feature of the BatchNorm layer", ylabel="density", yticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python experiments/batchnorm_picture.py FILE.svg")
    main(Path(sys.argv[1]))
