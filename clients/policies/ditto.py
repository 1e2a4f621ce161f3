"""Ditto: Li et al. 2021, "Ditto: Fair and Robust Federated Learning Through Personalization"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flwr.common import NDArrays, Scalar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import EVAL_SPLITS

from ..base import FedAvgClient
from ..modules.arrays import to_array
from ..modules.lazy_torch import torch
from ..objectives.fedprox import FedProx
from ..training import load_entries, train_model
from ..update import Update

PERSONAL = "personal"
SEED = 2  # appended to the seed of the round


class DittoClient(FedAvgClient):
    """Shares one model and keeps a personal model close to it (arXiv 2012.04221, algorithm 1).

    After the shared training, the personal model v minimises ``f(v) + lambda/2 ||v - x||^2``, where x is the
    received model. The second term covers shared, trainable parameters only. The client evaluates v, which
    has its personal BatchNorm statistics. The update sent to the server does not depend on v.
    """

    purpose = "Shares one model, and keeps a personal model close to it."
    helps = ("personal-models", "fairness", "hostile-clients")
    paper = "li2021ditto"

    decides = "a personal model"
    remembers = True
    personal_group = PERSONAL

    pulled_by = ("ditto-lambda", 1)
    ditto_lambda: float = setting(
        0.1, ge=0, description="weight of the distance to the shared model", allow_inf_nan=False
    )

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> Update:
        model = self.task.model
        entries = model.state_dict()
        personal = self.memory.read(PERSONAL)
        self.load(entries, parameters)
        proximal = self.with_objective(FedProx)
        run = proximal.begin_run(dict(model.named_parameters()), {**config, "mu": self.ditto_lambda}, {})
        start = personal or {name: to_array(entry) for name, entry in self._varying(entries)}
        update = super().fit(parameters, {**config, EVAL_SPLITS: ""})
        load_entries(entries, self.completed(start))
        train_model(model, replace(run, seed=(*run.seed, SEED)))
        self.check_finite(entries)
        self.memory.write(PERSONAL, {name: to_array(entry) for name, entry in self._varying(entries)})
        if config[EVAL_SPLITS]:
            update.metrics.update(self.held_out_metrics(config))
        return update

    def _varying(self, entries: Mapping[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        return [(name, entry) for name, entry in entries.items() if name not in self.constant_names]
