"""Which rules publish nothing but what follows from the mean of the answers."""

from fedbn_flower.core.ground.settings import overridden

from .base import PseudoGradientStrategy

BETWEEN = (
    "_check_and_log_replies", "_construct_messages", "aggregate_train", "answer_weights", "collect_train",
    "configure_train", "new_round", "read_extras", "step_train",
)  # fmt: skip
"""Methods that stand between the answers and the step: who overrides one could pass more than the mean."""


def post_processes_mean(rule: type[PseudoGradientStrategy]) -> bool:
    """Return whether all that a rule publishes follows from the means that it gets.

    The class that defines `server_step` has to say so: ``post_processes_mean = True``.
    """
    owner = next(cls for cls in rule.__mro__ if "server_step" in vars(cls))
    states_it = vars(owner).get("post_processes_mean") is True
    return states_it and not overridden(rule, PseudoGradientStrategy, BETWEEN)


def goes_with_buffers(rule: type[PseudoGradientStrategy]) -> bool:
    """Return whether a rule goes with an asynchronous protocol, which scales answers by their staleness.

    Its step uses nothing but their mean, and needs no equal weights.
    """
    return post_processes_mean(rule) and not rule.weighs_alike
