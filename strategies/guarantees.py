"""Which rules meet what privacy and asynchronous protocols assume, and Flower's privacy wrappers."""

from flwr.serverapp.strategy import Strategy

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


def check_wrapper(wrapper: Strategy) -> None:
    """Check that a rule satisfies what the guarantee of a Flower differential-privacy wrapper assumes::

        strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(...), 1.0, 1.0, num_sampled_clients=10)
        check_wrapper(strategy)

    Raises
    ------
    ValueError
        Names the settings that the rule lacks.
    TypeError
        When it is no wrapper of a rule of this package.
    """
    rule, clients = getattr(wrapper, "strategy", None), getattr(wrapper, "num_sampled_clients", None)
    if not isinstance(rule, PseudoGradientStrategy) or clients is None:
        raise TypeError(f"{type(wrapper).__name__} is no privacy wrapper around a PseudoGradientStrategy")
    lacking = {
        "weighted_by_key=None (the noise is for clients of equal weight)": rule.weighted_by_key is not None,
        f"min_replies={clients} (with fewer answers each weighs more, under the same noise)": (
            rule._min_replies_ < clients
        ),
        "seed=None (whoever knows a seed knows the sampled clients)": rule._seed_ is not None,
    }
    if wanted := ", ".join(setting for setting, lacks in lacking.items() if lacks):
        names = f"{type(wrapper).__name__} protects less than it states around {type(rule).__name__}"
        raise ValueError(f"{names}: set {wanted}")
