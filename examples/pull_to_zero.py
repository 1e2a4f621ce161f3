"""A local objective of one's own, with a setting: it adds its term to the gradient.

python run_sim.py --objective examples/pull_to_zero.py:PullToZero --pull 0.1
flwr run . --run-config "objective='examples/pull_to_zero.py:PullToZero' settings='pull=0.1'"
"""

from fedbn_flower.clients import Objective, setting


class PullToZero(Objective):
    """``f + pull/2 ||w||^2``, over the shared parameters."""

    pull: float = setting(0.01, ge=0, description="weight of the squared norm")

    elementwise = True
    """Every entry is corrected by itself, so that many clients can train in lockstep."""

    def correct_gradients(self) -> None:
        for _, w, gradient in self.gradients():
            gradient.add_(w, alpha=self.pull)
