"""Print which groups of clients a sweep has found: ``python experiments/clusters_found.py DIR``."""

import sys
from pathlib import Path

import pandas as pd
from rotated_digits import rotation_of
from sklearn.metrics import adjusted_rand_score

from fedbn_flower.api.result import Result
from fedbn_flower.results.manifest import read_manifest


def found(folder: Path) -> dict[str, object]:
    """Return how many models the clients of a run have at the end, and how these groups fit the rotations."""
    config, result = read_manifest(folder, "run-dir"), Result(folder)
    name = f"{config['strategy']} {config.get('clusters', '')}".strip()
    row = {"strategy": name, "seed": config["seed"], "accuracy": 100 * result.summary["mean"]["accuracy"]}
    if config["reference"] != "none":
        row["strategy"] = f"reference {config['reference']}"
    last = result.clients[result.clients.phase == "evaluate"]
    last = last[last["round"] == last["round"].max()]
    if "model" not in last or not len(last):
        return row
    rotations = [rotation_of(client) for client in last.partition]
    return {
        **row,
        "models": last.model.nunique(),
        "agreement": adjusted_rand_score(rotations, list(last.model)),
    }


def main(sweep: Path) -> None:
    """Print a table, a row for each strategy, with what its seeds come to."""
    runs = pd.DataFrame([found(path.parent) for path in sorted(sweep.glob("*/summary.json"))])
    print("| strategy | accuracy | models in use | agreement with the rotations | all four found |")
    print("|---|---|---|---|---|")
    for name, same in runs.groupby("strategy", sort=False):
        text = f"| {name} | {same.accuracy.mean():.1f} +- {same.accuracy.std():.1f} |"
        if same.get("models") is not None and same.models.notna().all():
            numbers = ", ".join(str(int(number)) for number in same.models)
            exact = int((same.agreement == 1).sum())
            text += f" {numbers} | {same.agreement.mean():.2f} | {exact} of {len(same)} |"
        print(text if text.count("|") > 3 else f"{text} | | |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
