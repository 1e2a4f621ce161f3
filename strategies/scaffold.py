"""SCAFFOLD: Karimireddy et al. 2020, "Stochastic Controlled Averaging" (arXiv 1910.06378)."""

from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from .base import PseudoGradientStrategy
from .checks import ReplyRefused, TrainReply, check_arrays, require
from .vectors import Layout, Vector

CONTROL = "control"


@dataclass(eq=False, kw_only=True)
class Scaffold(PseudoGradientStrategy):
    """``x += eta mean_i (x_i - x); c += (1/M) sum_i (c_i+ - c_i)`` (Algorithm 1), over those that answered.

    Goes with the local objective of that name. c goes out, and the changes come back, in an ArrayRecord
    ``control`` of their own. The means are plain, by the paper; with a robust mean, both are that mean
    (of the changes, times the number of answers).

    Parameters
    ----------
    eta : float
        Global step size eta_g, > 0.
    num_clients : int, optional
        M, the number of all clients; by default the nodes connected.
    """

    partner = "scaffold"
    uniform = True

    eta: float = 1.0
    num_clients: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eta > 0, "eta", self.eta, "a number > 0")
        require(
            self.num_clients is None or self.num_clients > 0, "num_clients", self.num_clients, "a number > 0"
        )

    def records(self, layout: Layout) -> dict[str, ArrayRecord]:
        return {CONTROL: layout.parameters_record(self._c(layout))}

    def begin(self, layout: Layout) -> None:
        self._changes = self.mean_of(np.zeros_like(self._c(layout)))

    def absorb(self, content: RecordDict, answer: TrainReply, layout: Layout) -> float:
        record = content.array_records.get(CONTROL)
        if record is None:
            raise ReplyRefused(f"the ArrayRecord {CONTROL!r} is missing")
        expected = {name: self._current[name] for name in layout.parameters}
        changes = check_arrays(record, expected)
        self._changes.add((changes[name] for name in layout.parameters), 1.0)
        return 1.0

    def _c(self, layout: Layout) -> Vector:
        return self.vector("c", like=layout.flatten_parameters(self._current))

    def step(self, delta: Vector, t: int) -> Vector:
        share = self.num_replies / (self.num_clients or self.known_clients)
        self.state["c"] += share * self._changes.mean()
        return self.eta * delta
