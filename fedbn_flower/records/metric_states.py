"""The states of a round's further metrics: their sum over clients, and the file that has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.evaluation import added
from fedbn_flower.strategies import PhaseReport

from ..core.free_memory import regular
from ..core.ground.wire import STATES
from .array_file import array_file
from .events import RoundResult

STATES_FILE = "states.safetensors"
POOLED, GLOBAL = "pooled", "global"
MOST_CLIENTS = 12
"""How many clients have their states in the file; with more, none has."""


def pooled_states(report: PhaseReport) -> dict[str, NDArray]:
    """Return the sum over clients of each state of the further metrics, by its name in the reports.

    A client without any has evaluated nothing. A state that not every other client sent is left out: the sum
    would not be that of all examples.
    """
    sent = [states for states in report.states.values() if states]
    names = dict.fromkeys(name for states in sent for name in states)
    return added(
        {name: states[name] for name in names if all(name in some for some in sent)} for states in sent
    )


def states_file(result: RoundResult, problem: Problem) -> bytes:
    """Return the content of ``states.safetensors``; empty without states.

    An array is called ``WHOSE/STATE``: ``pooled``, ``global`` or a partition. It is of the split that the
    summary is of.
    """
    prefix, report = result.prefix, result.evaluate
    by_whom: dict[str, Mapping[str, Any]] = {
        POOLED: pooled_states(report),
        GLOBAL: (result.global_metrics or {}).get(STATES, {}),
    }
    if len(report.states) <= MOST_CLIENTS:
        by_whom |= {str(partition): states for partition, states in report.states.items()}
    names = {metric.state for metric in problem.chosen.values()}
    found = {
        f"{who}/{name}": states[prefix + name]
        for who, states in by_whom.items()
        for name in sorted(names)
        if prefix + name in states
    }
    return array_file(STATES_FILE, found) if found else b""


def states_of(folder: Path) -> dict[str, dict[str, NDArray]]:
    """Return the states in a run's folder, by name, by whose they are; empty without the file."""
    try:
        found = load_file(regular(folder / STATES_FILE))
    except (OSError, SafetensorError):
        return {}
    states: dict[str, dict[str, NDArray]] = {}
    for key, array in found.items():
        name, state = key.split("/", 1)
        states.setdefault(name, {})[state] = array
    return states
