"""Check that a rule meets the assumptions of Flower's privacy wrappers."""

from flwr.serverapp.strategy import Strategy

from .base import PseudoGradientStrategy


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
