"""Adapters or full fine-tuning: a small Llama learns some speakers, then others (docs/results/adapters.md).

    python experiments/lora.py path/to/input.txt runs/lora

By FedAvg, every second speaker of a play trains a model. Others fine-tune it: all of it, or its adapters
alone; or they train one from scratch. Prints a table. A run that is complete is not repeated.
"""

import argparse
from pathlib import Path

from fedbn_flower import Result, simulate
from fedbn_flower.files.text import parse_speeches

MODELS = Path(__file__).resolve().parents[1] / "examples" / "lora.py"
SHOWN = (1, 2, 5, 10)
"""Rounds in the table."""
RUNS = (
    ("all, from scratch", "whole", 0.003, False),
    ("all, from weights", "whole", 0.003, True),
    ("adapters, from weights", "lora", 0.01, True),
)
"""What trains, the model's function, the clients' rate, and whether it starts from weights."""
COMMON = {
    "strategy": "fedavg", "client": "shared", "client_optimizer": "adam", "batch_size": 10, "local_epochs": 2,
    "eval_data": "local", "backend": "inline", "progress": False,
}  # fmt: skip


def halves(play: Path, folder: Path) -> tuple[Path, Path]:
    """Write the speeches of every second speaker to a file, and those of the others."""
    speakers = list(parse_speeches(play.read_text("utf-8-sig")).items())
    paths = folder / "first.txt", folder / "others.txt"
    for path, half in zip(paths, (speakers[::2], speakers[1::2]), strict=True):
        path.write_text("\n".join(f"{name}:\n{text.rstrip()}\n" for name, text in half))
    return paths


def run(folder: Path, rounds: int, **keys: object) -> Result:
    """Simulate, unless the folder holds these rounds."""
    if (folder / "summary.json").exists() and Result(folder).summary["rounds"] == rounds:
        return Result(folder)
    return simulate(run_dir=folder, rounds=rounds, **COMMON, **keys)


def row(what: str, rate: float, result: Result) -> str:
    """A line of the table: bytes to and from all clients in a round, perplexity after some rounds."""
    rounds = result.history.set_index("round")
    sent, received = (int(rounds[f"bytes-{way}"].iloc[0]) for way in ("sent", "received"))
    shown = [f"{rounds['perplexity'][number]:.2f}" for number in SHOWN if number in rounds.index]
    return f"| {' | '.join([what, f'{rate:g}', f'{sent:,}', f'{received:,}', *shown])} |"


def main() -> None:
    """Run all, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("play", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--first-rounds", type=int, default=40, help="of the whole model on the first speakers"
    )
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    first, others = halves(chosen.play, chosen.folder)
    pretrained = chosen.folder / "pretrained"
    keys = {"model": f"{MODELS}:whole", "num_clients": 3 * chosen.clients, "fraction_train": 1 / 3}
    run(pretrained, chosen.first_rounds, dataset=f"text:{first}", client_lr=0.003, evaluate_every=10, **keys)
    print(f"| what trains | rate | bytes to clients | from clients | {' | '.join(map(str, SHOWN))} |")
    for what, model, rate, init in RUNS:
        place = chosen.folder / what.replace(", ", "-").replace(" ", "-")
        keys = {"model": f"{MODELS}:{model}", "num_clients": chosen.clients, "client_lr": rate}
        start = {"init": pretrained} if init else {}
        result = run(place, chosen.rounds, dataset=f"text:{others}", **keys, **start)
        print(row(what, rate, result), flush=True)


if __name__ == "__main__":
    main()
