"""kNN-Per: Marfoq et al. 2022, "Personalized Federated Learning through Local Memorization"."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..base import FedAvgClient
from ..modules.head import features
from ..modules.lazy_torch import nn, torch
from ..problems import Classification, Problem
from ..problems.evaluation import evaluation_batch


class KNNPerClient(FedAvgClient):
    """Predicts by ``lambda p_knn + (1 - lambda) p``, neighbours among its own examples (arXiv 2111.09360).

    A class's share in p_knn is proportional to ``sum exp(-d / scale)`` over those of the k nearest training
    examples that have it, d the distance of what goes into the model's head; the authors' code has its
    square over the number of features there. It trains and shares as without. The store of its examples'
    features is made anew for each evaluation, and is never sent.
    """

    purpose = "Shares one model; each client corrects its predictions by its own nearest examples."
    helps = ("personal-models",)
    paper = "marfoq2022knnper"

    decides = "the predictions"

    knn_lambda: float = setting(0.5, ge=0, lt=1, description="share of the neighbours' vote in a prediction")
    knn_neighbours: int = setting(10, ge=1, description="k, how many neighbours vote")
    knn_scale: float = setting(1.0, gt=0, description="distance at which a neighbour's vote falls to 1/e")

    @classmethod
    def misfit(cls, model: nn.Module, problem: Problem, inputs: torch.Tensor) -> str:
        if not isinstance(problem, Classification):
            return "neighbours vote for classes, and there are none to choose from"
        try:
            with torch.no_grad():
                features(model, inputs)
        except ValueError as error:
            return str(error)
        return super().misfit(model, problem, inputs)

    def predictor(self) -> nn.Module:
        task, model = self.task, super().predictor()
        if not len(task.train):
            return model
        from ..modules.neighbours import Neighbours  # imports PyTorch

        settings = self.knn_lambda, self.knn_neighbours, self.knn_scale
        return Neighbours(model, task.train, evaluation_batch(task.train, task.problem), *settings)
