"""Evaluate the global model on the server, on all held-out examples."""

from typing import Any

from flwr.app import ArrayRecord
from torch import nn

from fedbn_flower.clients import evaluate_splits, load_entries
from fedbn_flower.strategies import PhaseReport

from .divergence import first_to_diverge
from .inputs import RunInputs


def evaluate_global(
    inputs: RunInputs,
    model: nn.Module,
    arrays: ArrayRecord,
    splits: str,
    classes: int = 0,
    report: PhaseReport | None = None,
) -> tuple[dict[str, Any] | None, str]:
    """Return the global model's metrics, and who found that the model is no longer finite.

    Parameters
    ----------
    inputs : RunInputs
        The run's.
    model : nn.Module
        A model to load ``arrays`` into.
    splits : str
        Held-out splits, with commas; nothing is evaluated without one.
    classes : int
        How many classes are counted by themselves; 0 for none.
    report : PhaseReport, optional
        What the clients found. It decides where the server cannot evaluate.

    Returns
    -------
    tuple
        The metrics, or None where the server cannot evaluate; and a reason, or an empty string.
    """
    if not splits:
        return None, ""
    if not inputs.server_evaluates:
        of_received = inputs.config.eval_model != "local"
        at_least = min(2, inputs.config.num_training)
        return None, first_to_diverge(report, at_least) if report and of_received else ""
    load_entries(model.state_dict(), {name: array.numpy() for name, array in arrays.items()})
    held_out = {split: inputs.whole_split(split) for split in splits.split(",")}
    try:
        return evaluate_splits(model, held_out, splits, inputs.dataset.problem, classes), ""
    except FloatingPointError as error:
        return None, f"server: {error}"
