"""Data that are made, client by client: synthetic classification, and least squares with a known optimum."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import LeastSquares, Problem

from ...core.errors import not_allowed, unknown_name
from ...core.input_spec import InputSpec
from ...core.notes import Note
from ..dataset import Decoded, Kind, Request, Rows, Split

Part = tuple[NDArray[Any], NDArray[Any]]
"""Inputs and targets."""


def check_group_column(request: Request, column: str) -> None:
    """Refuse a natural partition by another column than this one.

    Raises
    ------
    UserError
        Names the column.
    """
    if request.group_column not in ("", column):
        raise unknown_name("partition", f"natural:{request.group_column}", ["iid", f"natural:{column}"])


def join_clients(
    kind: str,
    clients: Mapping[str, tuple[Part, Part]],
    request: Request,
    facts: Mapping[str, Any] | None = None,
    notes: Iterable[Note] = (),
) -> Decoded:
    """Concatenate the training and test parts of the clients, given by id."""

    def split(parts: Sequence[Part]) -> Split:
        inputs, targets = map(np.concatenate, zip(*parts, strict=True))
        ids = np.repeat(list(clients), [len(y) for _, y in parts]) if request.group_column else None
        return Split({"x": inputs, "y": targets}, ids)

    train, test = map(split, zip(*clients.values(), strict=True))
    return Decoded(kind, train, test, facts or {}, notes=tuple(notes))


SYNTHETIC = "synthetic:"
FORM = "synthetic:ALPHA,BETA, two numbers from 0 to 1000 (synthetic:1,1)"
FEATURES, CLASSES = 60, 10
MIN_EXAMPLES = 50
MAX_PARAMETER = 1000.0


def decode_synthetic(request: Request) -> Decoded:
    """Generate classification of ``request.clients`` clients from ``request.seed``.

    See Li et al. 2020 (1812.06127, section 5.1): clients differ in the distribution of their inputs, and in
    the model that labels them.
    Client k draws u_k ~ N(0, alpha) and B_k ~ N(0, beta), then W_k (60, 10) and b_k (10) with elements from
    N(u_k, 1), and v_k (60) with elements from N(B_k, 1). An example is x ~ N(v_k, diag(j^-1.2)), with the
    class argmax(softmax(x W_k + b_k)). As in the authors' code, alpha and beta are standard deviations, a
    client has floor(lognormal(4, 2)) + 50 examples, and the last tenth of them is for testing.

    Raises
    ------
    UserError
        When the name does not give a valid alpha and beta.
    """
    alpha, beta = _alpha_and_beta(request.name)
    check_group_column(request, "client")
    rng = np.random.default_rng(request.seed)
    counts = rng.lognormal(4, 2, request.clients).astype(np.int64) + MIN_EXAMPLES
    deviations = np.arange(1, FEATURES + 1) ** -0.6
    clients = {}
    for client, count in enumerate(counts.tolist()):
        model_mean, input_mean = rng.normal(0, alpha), rng.normal(0, beta)
        weights = rng.normal(model_mean, 1, (FEATURES, CLASSES))
        bias = rng.normal(model_mean, 1, CLASSES)
        centre = rng.normal(input_mean, 1, FEATURES)
        x = rng.normal(centre, deviations, (count, FEATURES))
        y = (x @ weights + bias).argmax(1)
        inputs, cut = x.astype(np.float32), count * 9 // 10
        clients[str(client)] = (inputs[:cut], y[:cut]), (inputs[cut:], y[cut:])
    facts = {"predicts": "classes", "outputs": CLASSES}
    return join_clients("numeric", clients, request, facts)


def _alpha_and_beta(name: str) -> tuple[float, float]:
    try:
        alpha, beta = map(float, name.removeprefix(SYNTHETIC).split(","))
    except ValueError:
        raise not_allowed("dataset", name, FORM) from None
    if not (0 <= alpha <= MAX_PARAMETER and 0 <= beta <= MAX_PARAMETER):
        raise not_allowed("dataset", name, FORM)
    return alpha, beta


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
    size = _size(request.name)
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


def _size(name: str) -> int:
    text = name.removeprefix(QUADRATIC)
    if not text.isdecimal() or not 1 <= int(text) <= MAX_SIZE:
        raise not_allowed("dataset", name, f"quadratic:DIM, a whole number from 1 to {MAX_SIZE}")
    return int(text)
