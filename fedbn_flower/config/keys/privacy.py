"""The keys of differential privacy, and which values of all keys go together with them."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field as setting

from fedbn_flower.strategies.post_processing import post_processes_mean

from ...core.errors import UserError, not_allowed
from ...core.key_group import KeyGroup, flag_of
from ...names import STRATEGY
from ...privacy.accounts import LEAST_EPSILON, MOST_EPSILON
from ...privacy.private_run import ADAPTIVE, NO_SEED, num_answers, num_groups
from ..extension_names import EXTENSION, extension_names
from .compression import NONE

if TYPE_CHECKING:
    from ..run_config import RunConfig

CLIP = f"a number > 0, or {ADAPTIVE}"
WHOLE = 0.005
"""How far the groups times fraction-train may be from 1: 0.333 is a third."""
EXAMPLE_CLIENTS = frozenset({"fedavg", "silobn", "fedbn", "fedper"})
"""Those that train once a round, by DP-SGD with ``dp`` example."""
NO_METRICS = ("eval_model", "fine_tune", "holdout_clients")
"""Keys that are of no use where clients send no metrics."""
NOT_CLIENTS = "since not clients are protected"
POST_PROCESSING = "a rule that declares post_processes_mean = True"
LEAST_DELTA = 1e-15
"""Of those that can be accounted with floats."""


class Privacy(KeyGroup):
    """Differential privacy"""

    dp: Literal["none", "client", "local", "example"] = setting(
        "none",
        description="what is published tells almost nothing of whether a client took part, or an example of "
        "one client; with local each client adds the noise itself",
    )
    dp_epsilon: float = setting(
        0.0, ge=0, description="the privacy budget, from which the noise is found; 0 with dp-noise"
    )
    dp_delta: float = setting(
        0.0, ge=0, lt=1, description="probability for which epsilon need not hold, below 1/num-clients"
    )
    dp_noise: float = setting(
        0.0, ge=0, description="deviation of the noise on the sum over dp-clip; 0 with dp-epsilon"
    )
    dp_clip: Annotated[Annotated[float, setting(gt=0)] | Literal["adaptive"], CLIP] = setting(
        1.0,
        description="bound on the L2 norm of a client's update, or of an example's gradient; adaptive goes "
        "to the median norm of updates",
    )
    dp_sampling: Literal["poisson", "fixed", "all", "cyclic"] = setting(
        "poisson",
        description="who trains in a round: each client with probability fraction-train, a sample of fixed "
        "size, all, or one of 1/fraction-train fixed groups in turn",
    )
    dp_bands: int = setting(
        0,
        ge=0,
        description="with dp-sampling cyclic, over how many rounds noise is correlated; 1 for independent "
        "noise, 0 for as many as there are groups",
    )
    dp_secure_noise: bool = setting(
        False,
        description="draw discrete noise exactly, on a grid that updates are rounded to, against attacks on "
        "the rounding of floats; it costs more epsilon",
    )
    dp_metrics: float = setting(
        0.0,
        ge=0,
        description="with local and example, the epsilon that all metrics of a client cost it beside "
        "training: they leave it clipped, with noise; 0 for no metrics",
    )
    dp_scale: str = setting(
        "",
        description="with example and tables, the public scale of numbers, COLUMN=MEAN:DEVIATION with "
        "commas; others stay as they are, since the clients' own means would tell of single rows",
    )
    dp_unit: str = setting(
        "",
        description="with example and tables, the column by whose values rows are protected together, such "
        "as a patient's: they are sampled, clipped and counted as one",
    )
    dp_seed: int = setting(
        NO_SEED,
        ge=NO_SEED,
        lt=2**63,
        description="makes sampling and noise repeatable, which is a simulation only; -1 takes a secret key",
    )
    dp_simulate_cohort: int = setting(
        0,
        ge=0,
        description="take noise as for so many clients a round, a hypothetical run; 0 for none",
    )
    dp_simulate_population: int = setting(
        0, ge=0, description="the number of clients of that hypothetical run; 0 for num-clients"
    )

    @property
    def clip(self) -> float | None:
        """The number of ``dp-clip``; None if it adapts."""
        return None if self.dp_clip == ADAPTIVE else float(self.dp_clip)


def _answers(config: "RunConfig") -> float:
    return num_answers(config.dp_sampling, config.fraction_train, config.num_training, config.clients_a_round)


def check_privacy(config: "RunConfig") -> None:
    """Refuse keys of differential privacy that do not go together, or with the other keys.

    Raises
    ------
    UserError
        For the first one.
    """
    if config.dp == "none":
        for name, field in Privacy.model_fields.items():
            if (value := getattr(config, name)) != field.default:
                raise UserError(
                    f"{flag_of(name)}: {value} is not used without dp; give dp=client, example or local"
                )
        return
    for key, codec in (("compress", config.compress), ("compress-down", config.compress_down)):
        if codec != NONE:
            raise not_allowed(key, codec, f"{NONE!r} with dp {config.dp!r}")
    for key, value, wanted in _unfit(config, dict(config.algorithm_settings)):
        raise not_allowed(key, value, f"{wanted} with dp {config.dp!r}")


def _unfit(config: "RunConfig", settings: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Yield each key whose value does not go with privacy, with the value and what is allowed."""
    yield from _unfit_noise(config)
    yield from _unfit_scale(config)
    yield from _unfit_unit(config)
    if config.dp == "client":
        yield from _unfit_client(config, settings)
    else:
        yield from _unfit_at_clients(config)
    if config.selection != "uniform":
        yield "selection", config.selection, "'uniform', since who trains would tell of the clients' data,"
    if config.normalize:
        yield "normalize", config.normalize, "false, since its means are of all training data,"
    if config.inspect:
        yield "inspect", True, "false, since counts are of all training data,"
    if config.patience:
        yield "patience", config.patience, "0, since clients' metrics would decide what is published,"
    if config.stop_at_target:
        yield "stop-at-target", True, "false, since clients' metrics would decide what is published,"
    if any(name not in EXTENSION.names for name in extension_names(config.extension)):
        wanted = "none of your own, since clients' metrics could decide what is published,"
        yield "extension", config.extension, wanted


def _unfit_noise(config: "RunConfig") -> Iterator[tuple[str, object, str]]:
    if not config.dp_epsilon and not config.dp_noise:
        yield "dp-epsilon", 0.0, "a number > 0, or a dp-noise > 0,"
    for key, value in (("dp-epsilon", config.dp_epsilon), ("dp-metrics", config.dp_metrics)):
        if value and not LEAST_EPSILON <= value <= MOST_EPSILON:
            yield key, value, f"a number in [{LEAST_EPSILON:g}, {MOST_EPSILON:g}]"
    if config.dp_epsilon and config.dp_noise:
        yield "dp-noise", config.dp_noise, "0, since dp-epsilon is given,"
    if config.dp_delta < LEAST_DELTA:
        below = f"1/num-clients ({1 / config.num_training:.2g})" if config.dp != "example" else "1/examples"
        yield "dp-delta", config.dp_delta, f"a number from {LEAST_DELTA:g} on, below {below},"


def _unfit_at_clients(config: "RunConfig") -> Iterator[tuple[str, object, str]]:
    local = config.dp == "local"
    if config.clip is None:
        yield "dp-clip", ADAPTIVE, "a number > 0"
    why = "since no sampling hides a client from who reads its messages" if local else NOT_CLIENTS
    for key in ("dp_sampling", "dp_bands", "dp_simulate_cohort", "dp_simulate_population"):
        if (value := getattr(config, key)) != (default := Privacy.model_fields[key].default):
            yield flag_of(key), value, f"{default!r}, {why},"
    if config.dp_secure_noise:
        yield "dp-secure-noise", True, "false, since clients add the noise,"
    for key in NO_METRICS:
        if (value := getattr(config, key)) != (default := type(config).model_fields[key].default):
            yield flag_of(key), value, f"{default!r}, since clients send no other metrics than dp-metrics,"
    yield from _unfit_local(config) if local else _unfit_example(config)


def _unfit_local(config: "RunConfig") -> Iterator[tuple[str, object, str]]:
    if config.weighting == "num-examples":
        yield "weighting", config.weighting, "'uniform', since a client's number of examples is its own,"
    if not post_processes_mean(STRATEGY.find(config.strategy)):
        yield "strategy", config.strategy, POST_PROCESSING


def _unfit_example(config: "RunConfig") -> Iterator[tuple[str, object, str]]:
    if config.precision != "fp32":
        yield "precision", config.precision, "'fp32'"
    if set(config.client.split("+")) - EXAMPLE_CLIENTS:
        yield "client", config.client, f"one of {', '.join(sorted(EXAMPLE_CLIENTS))}, or some of these"


def _unfit_scale(config: "RunConfig") -> Iterator[tuple[str, object, str]]:
    if config.dp_scale and config.dp != "example":
        yield "dp-scale", config.dp_scale, "none, since clients' own means do not leave them,"


def _unfit_unit(config: "RunConfig") -> Iterator[tuple[str, object, str]]:
    if config.dp_unit and config.dp != "example":
        why = "since each client is protected with all of its rows,"
        yield "dp-unit", config.dp_unit, f"none, {why}"
    if config.dp_unit and config.dp_metrics:
        yield "dp-metrics", config.dp_metrics, "0 with dp-unit, since metrics are those of single examples,"


def _unfit_client(config: "RunConfig", settings: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    if config.dp_metrics:
        yield "dp-metrics", config.dp_metrics, "0, since the server is trusted with metrics,"
    if config.dp_sampling == "all" and config.fraction_train < 1:
        yield "fraction-train", config.fraction_train, "1.0 with dp-sampling 'all'"
    if config.dp_secure_noise and config.dp_sampling in ("fixed", "cyclic"):
        yield "dp-sampling", config.dp_sampling, "'poisson' or 'all' with dp-secure-noise"
    yield from _unfit_turns(config)
    yield from _unfit_simulation(config)
    if config.weighting == "num-examples":
        yield "weighting", config.weighting, "'uniform', since the sum of the weights is private,"
    if not post_processes_mean(STRATEGY.find(config.strategy)):
        yield "strategy", config.strategy, POST_PROCESSING
    mean = settings.get("mean", "weighted")
    if mean != "weighted":
        yield "mean", mean, "'weighted', since one client can move another mean further than its clip,"
    if bound := settings.get("clip-update-norm", 0):
        yield "clip-update-norm", bound, "0 (dp-clip is that bound)"
    if (replies := settings.get("min-replies", 1)) > 1:
        yield "min-replies", replies, "1, since a round left out would tell how many answered,"


def _unfit_turns(config: "RunConfig") -> Iterator[tuple[str, object, str]]:
    groups, share, bands = (
        num_groups(config.dp_sampling, config.fraction_train),
        config.fraction_train,
        config.dp_bands,
    )
    if not groups:
        if bands:
            yield "dp-bands", bands, f"0 with dp-sampling {config.dp_sampling!r}"
        return
    if groups > config.num_training or abs(groups * share - 1) > WHOLE:
        wanted = f"1 over a whole number up to {config.num_training} with dp-sampling 'cyclic'"
        yield "fraction-train", share, wanted
    if bands > groups:
        yield "dp-bands", bands, f"at most {groups}, the groups that take turns,"
    if config.clip is None:
        yield "dp-clip", ADAPTIVE, "a number with dp-sampling 'cyclic'"


def _unfit_simulation(config: "RunConfig") -> Iterator[tuple[str, object, str]]:
    cohort, population = config.dp_simulate_cohort, config.dp_simulate_population
    answers = _answers(config)
    if population and not cohort:
        yield "dp-simulate-population", population, "0 without dp-simulate-cohort"
    if cohort and cohort < answers:
        yield "dp-simulate-cohort", cohort, f"at least {answers:g}, the clients of a round,"
    if cohort > (population or config.num_training):
        yield "dp-simulate-cohort", cohort, "at most dp-simulate-population"
    if cohort and config.dp_sampling == "all" and population not in (0, cohort):
        yield "dp-simulate-population", population, f"{cohort}, all of them, with dp-sampling 'all'"
    if (
        cohort
        and (groups := num_groups(config.dp_sampling, config.fraction_train))
        and (population or config.num_training) != cohort * groups
    ):
        wanted = f"{cohort * groups}, dp-simulate-cohort times the groups that take turns,"
        yield "dp-simulate-population", population, wanted
