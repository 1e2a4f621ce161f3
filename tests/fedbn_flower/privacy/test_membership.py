"""Membership inference against DP-SGD: LiRA, Carlini et al. 2022 (arXiv 2112.03570), on 64 models."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from clients.modules.dp_sgd import ExampleMechanism
from clients.objectives import Objective
from fedbn_flower.privacy.accounts import Plan, noise_for
from tests.clients.modules.test_dp_sgd import Numbers

MODELS, POINTS, WIDTH, STEPS, EPSILON, DELTA = 64, 100, 60, 12, 1.0, 1e-3


def confidences(noise):
    """Train logistic regressions, each on a random half. Return log-odds of the labels, and who was in."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(POINTS, WIDTH)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 2, POINTS))
    inside, found = rng.random((MODELS, POINTS)) < 0.5, np.empty((MODELS, POINTS))
    for i, own in enumerate(inside):
        model = nn.Linear(WIDTH, 2)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        mechanism = ExampleMechanism(1.0, noise, Numbers(i))
        for _ in range(STEPS):
            mechanism.backward(model, Objective({}, {}), x[own], y[own], POINTS // 2)
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad)
        logits = model(x).detach()
        found[i] = (logits.gather(1, y[:, None]) - logits.gather(1, 1 - y[:, None])).squeeze(1)
    return found, inside


def likelihood_ratios(found, inside):
    """For each model and point, by normal distributions fitted to all other models."""
    scores = np.empty_like(found)
    for i in range(MODELS):
        others = np.arange(MODELS) != i
        logs = []
        for chosen in (inside[others], ~inside[others]):
            seen = np.where(chosen, found[others], np.nan)
            logs.append(norm.logpdf(found[i], np.nanmean(seen, 0), np.nanstd(seen, 0) + 1e-6))
        scores[i] = logs[0] - logs[1]
    return scores


@pytest.mark.slow  # 64 models
@pytest.mark.parametrize("private", [True, False])
def test_membership_is_hidden_within_epsilon(private):
    """TPR <= exp(epsilon) FPR + delta at every threshold, to three standard errors; not so without noise."""
    noise = noise_for(EPSILON, Plan("all", 1.0, POINTS, STEPS, DELTA)) if private else 0.0
    found, inside = confidences(noise)
    scores = likelihood_ratios(found, inside)
    excess = []
    for threshold in np.quantile(scores, np.linspace(0.02, 0.98, 49)):
        tpr, fpr = (scores[inside] > threshold).mean(), (scores[~inside] > threshold).mean()
        error = math.sqrt((tpr * (1 - tpr) + math.exp(2 * EPSILON) * fpr * (1 - fpr)) / inside.sum())
        excess.append(tpr - math.exp(EPSILON) * fpr - DELTA - 3 * error)
    assert (max(excess) <= 0) == private
