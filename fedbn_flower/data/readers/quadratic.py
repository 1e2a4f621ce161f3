"""Heterogeneous least squares with an optimum in closed form."""

import numpy as np

from fedbn_flower.clients import LeastSquares, Problem

from ...core.errors import not_allowed
from ...core.input_spec import InputSpec
from ..dataset import Decoded, Kind, Request, Rows
from ..notes import Note
from .per_client import check_group_column, join_clients

QUADRATIC = "quadratic:"
MAX_SIZE = 1000
ROWS = 4  # per unknown


class Quadratic(Kind):
    """Least squares: ``x`` float32 (N, size), ``y`` float32 (N, 1); facts: the ``optimum``, bias last."""

    trains_on_all = True

    def spec(self) -> InputSpec:
        return InputSpec(self.train["x"].shape[1:], 1, "numbers")

    def problem(self, rows: Rows | None = None) -> Problem:
        if rows is None:
            return LeastSquares(np.array(self.facts["optimum"]))
        x, y = (self.train[name][rows].astype(np.float64) for name in ("x", "y"))
        return LeastSquares(np.linalg.lstsq(np.insert(x, x.shape[1], 1, axis=1), y[:, 0])[0])


def decode_quadratic(request: Request) -> Decoded:
    """Generate linear regressions of ``request.clients`` clients from ``request.seed``.

    Client i has the cost f_i(w) = 1/(2m) norm(A_i w - y_i)^2 with y_i = A_i w_i. Its optimum is w_i, with
    elements from N(0, 1). A row of A_i is x and a 1 for the bias; x_j ~ N(0, s_ij^2) with s_ij from
    U(0.5, 1.5), so that curvatures differ too. Every client has m = 4 (size + 1) rows. So the global cost,
    weighted by examples or not, is the mean of the f_i, with its minimum at
    (sum_i A_i^T A_i)^-1 sum_i A_i^T y_i. Evaluation computes that cost: the test rows are the training rows.

    Raises
    ------
    UserError
        When the name does not give a valid size.
    """
    size = _parse(request.name)
    check_group_column(request, "client")
    rng = np.random.default_rng(request.seed)
    curvature, pull = np.zeros((size + 1, size + 1)), np.zeros(size + 1)
    clients = {}
    for client in range(request.clients):
        client_optimum, scales = rng.normal(size=size + 1), rng.uniform(0.5, 1.5, size)
        x = rng.normal(0, scales, (ROWS * (size + 1), size)).astype(np.float32)
        rows = np.insert(x.astype(np.float64), size, 1, axis=1)
        y = (rows @ client_optimum).astype(np.float32)
        curvature += rows.T @ rows
        pull += rows.T @ y
        clients[str(client)] = ((x, y[:, None]),) * 2
    optimum = np.linalg.solve(curvature, pull)
    measured = "the cost is over all training rows; the distance is to the optimum of the clients that train"
    notes = [Note("target", measured)]
    return join_clients("quadratic", clients, request, {"optimum": optimum.tolist()}, notes)


def _parse(name: str) -> int:
    text = name.removeprefix(QUADRATIC)
    if not text.isdecimal() or not 1 <= int(text) <= MAX_SIZE:
        raise not_allowed("dataset", name, f"quadratic:DIM, a whole number from 1 to {MAX_SIZE}")
    return int(text)
