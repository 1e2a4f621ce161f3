"""Synthetic classification after Li et al. 2020 (1812.06127, section 5.1).

Clients differ in the distribution of their inputs, and in the model that labels them.
"""

import numpy as np

from ...core.errors import not_allowed
from ..dataset import Decoded, Request
from .per_client import check_group_column, join_clients

SYNTHETIC = "synthetic:"
FORM = "synthetic:ALPHA,BETA, two numbers from 0 to 1000 (synthetic:1,1)"
FEATURES, CLASSES = 60, 10
MIN_EXAMPLES = 50
MAX_PARAMETER = 1000.0


def decode_synthetic(request: Request) -> Decoded:
    """Generate examples of ``request.clients`` clients from ``request.seed``.

    Client k draws u_k ~ N(0, alpha) and B_k ~ N(0, beta), then W_k (60, 10) and b_k (10) with elements from
    N(u_k, 1), and v_k (60) with elements from N(B_k, 1). An example is x ~ N(v_k, diag(j^-1.2)), with the
    class argmax(softmax(x W_k + b_k)). As in the authors' code, alpha and beta are standard deviations, a
    client has floor(lognormal(4, 2)) + 50 examples, and the last tenth of them is for testing.

    Raises
    ------
    UserError
        When the name does not give a valid alpha and beta.
    """
    alpha, beta = _parse(request.name)
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


def _parse(name: str) -> tuple[float, float]:
    try:
        alpha, beta = map(float, name.removeprefix(SYNTHETIC).split(","))
    except ValueError:
        raise not_allowed("dataset", name, FORM) from None
    if not (0 <= alpha <= MAX_PARAMETER and 0 <= beta <= MAX_PARAMETER):
        raise not_allowed("dataset", name, FORM)
    return alpha, beta
