"""Codecs on quadratics: what is lost keeps training from the optimum, unless it is fed back."""

import pytest

JOB = {
    "dataset": "quadratic:5", "num_clients": 4, "client": "shared", "strategy": "fedavg", "batch_size": 0,
    "local_epochs": 1, "client_lr": 0.2, "client_lr_schedule": "cosine:0", "rounds": 60,
    "fraction_evaluate": 0.0, "evaluate_every": 60, "checkpoint_every": 0,
}  # fmt: skip


@pytest.mark.slow
def test_feedback_reaches_the_optimum_that_without_it_is_missed(run):
    """The optimum is in closed form. One step of all examples a round is gradient descent: FedAvg gets there
    too. The rate falls to 0, since what is not sent yet is as large as a step."""

    def distance(codec, feedback):
        name = f"{codec}-{feedback}".replace(":", "-")
        result = run(**JOB, compress=codec, error_feedback=feedback, run_dir=name)
        return result.summary["global"]["distance"]

    assert distance("none", "auto") < 0.02
    for codec in ("topk:0.2", "sign"):
        assert distance(codec, "off") > 0.3
        assert distance(codec, "on") < 0.05
