"""Which rules publish only functions of the mean of the answers (post-processing)."""

from fedbn_flower.core.ground.settings import overridden

from .base import PseudoGradientStrategy

BETWEEN = (
    "_check_and_log_replies", "_construct_messages", "aggregate_train", "answer_weights", "collect_train",
    "configure_train", "new_round", "read_extras", "step_train",
)  # fmt: skip
"""Methods that stand between the answers and the step: who overrides one could pass more than the mean."""


def post_processes_mean(rule: type[PseudoGradientStrategy]) -> bool:
    """Return whether everything that a rule publishes is computed from the means that it gets.

    The class that defines `server_step` has to declare ``post_processes_mean = True``.
    """
    owner = next(cls for cls in rule.__mro__ if "server_step" in vars(cls))
    states_it = vars(owner).get("post_processes_mean") is True
    return states_it and not overridden(rule, PseudoGradientStrategy, BETWEEN)


def goes_with_buffers(rule: type[PseudoGradientStrategy]) -> bool:
    """Return whether a rule is compatible with asynchronous protocols, which scale answers by staleness.

    Its step must use only the answers' mean, and must not need equal weights.
    """
    return post_processes_mean(rule) and not rule.weighs_alike
