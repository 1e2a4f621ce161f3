"""The run configuration: every key of ``run_sim.py``'s command line and of Flower's run config.

The defaults here and those in pyproject.toml's ``[tool.flwr.app.config]`` are the same; a test says so.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args, get_origin

from flwr.app import UserConfig, UserConfigValue
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clients import CLIENTS, OBJECTIVES
from strategies import STRATEGIES

from .errors import UserError, not_allowed, unknown_name
from .models import MODELS, InputSpec
from .partition_spec import PartitionSpec

Auto = Literal["auto"]
Count = Annotated[int, Field(ge=1), "a whole number >= 1"]
CountOrZero = Annotated[int, Field(ge=0), "a whole number >= 0"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), "a number > 0"]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), "a number >= 0"]
Fraction = Annotated[float, Field(ge=0, le=1), "a number in [0, 1]"]
Share = Annotated[float, Field(ge=0, lt=1), "a number in [0, 1)"]
Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"),
    "a name of at most 64 letters, digits, dots, hyphens and underscores",
]
TrimShare = Annotated[float, Field(ge=0, lt=0.5), "a number in [0, 0.5)"]
Examples = Annotated[int, Field(ge=0, le=2**53), "a whole number in [0, 2^53]"]
Seed = Annotated[int, Field(ge=0, lt=2**32), "a whole number in [0, 2^32)"]


class RunConfig(BaseModel):
    """One run. A value of ``auto`` means the strategy's own default."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "-"), extra="forbid", frozen=True
    )

    strategy: str = Field("fedyogi", description="server rule")
    client: str = Field("fedbn", description="what stays at home (BatchNorm policy)")
    objective: str = Field("sgd", description="what a client minimises locally")
    model: str = Field("mlp-bn", description="network")
    dataset: str = Field(
        "digits",
        description="'digits', a local folder, a Hugging Face name, or shape:CxHxW:CLASSES where only "
        "SuperNodes have data",
    )
    partition: str = Field("silos:0-4,5-9", description=PartitionSpec.FORMS)
    num_clients: Count = Field(2, description="number of partitions of the training set")
    rounds: Count = Field(10, description="rounds")
    seed: Seed = Field(0, description="decides initialisation, partition, sampling and shuffling")

    local_epochs: Count = Field(2, description="passes over its examples a client makes in a round")
    batch_size: CountOrZero = Field(32, description="0 takes all of a client's examples at once")
    client_optimizer: Literal["sgd", "adam"] = Field("sgd", description="sgd or adam")
    client_lr: Positive = Field(0.05, description="learning rate of the clients")
    client_lr_decay: Positive = Field(1.0, description="factor on the clients' rate per round")
    client_momentum: Share = Field(0.0, description="momentum of the clients' SGD")
    weight_decay: NonNegative = Field(0.0, description="weight decay of the clients' optimiser")
    clip_norm: NonNegative = Field(0.0, description="clients: bound on each gradient's L2 norm; 0 for none")

    server_lr: Positive | Auto = Field("auto", description="eta")
    server_momentum: Share | Auto = Field("auto", description="momentum of FedAvg, FedAvgM")
    beta_1: Share | Auto = Field("auto", description="first-moment decay of adaptive rules")
    beta_2: Share | Auto = Field("auto", description="second-moment decay of FedYogi, FedAdam")
    tau: Positive | Auto = Field("auto", description="adaptivity of adaptive rules")
    bias_correction: bool | Auto = Field("auto", description="of adaptive rules")
    v_init: NonNegative | Auto = Field("auto", description="second moment at the start")
    alpha: Positive = Field(0.01, description="regulariser of feddyn")
    mu: NonNegative = Field(0.01, description="proximal term of fedprox")
    weighting: Literal["num-examples", "uniform"] = Field(
        "num-examples", description="what weighs a client: num-examples or uniform"
    )
    fraction_train: Fraction = Field(1.0, description="share of the clients that train in a round")
    fraction_evaluate: Fraction = Field(1.0, description="share of the clients that evaluate")

    mean: Literal["weighted", "median", "trimmed"] = Field(
        "weighted", description="the server's mean over clients; median and trimmed withstand liars"
    )
    trim: TrimShare = Field(0.1, description="share that the trimmed mean leaves out at each end")
    clip_update_norm: NonNegative = Field(
        0.0, description="server: bound on a client's whole update (L2 norm); 0 for none"
    )
    max_num_examples: Examples = Field(
        0, description="refuse an answer that claims more training examples; 0 for 2^53"
    )
    min_replies: Count = Field(1, description="usable answers that an update of the model takes")
    node_timeout: Positive = Field(600.0, description="seconds to wait for SuperNodes to connect")
    round_timeout: Positive = Field(3600.0, description="seconds to wait for a phase's answers")

    eval_model: Literal["aggregated", "local"] = Field(
        "aggregated",
        description="what a client evaluates: the aggregated model with its own local BN, "
        "or the local one it has just trained",
    )
    eval_data: Literal["global", "local"] = Field(
        "global", description="the whole held-out set, or the client's share of it"
    )
    val_fraction: Share = Field(
        0.0, description="share of the training set kept apart; the test set is then for the end"
    )

    softmax_output: bool = Field(False, description="put a softmax into the model, before the loss")
    normalize: bool = Field(False, description="standardise images per channel")
    image_size: CountOrZero = Field(0, description="resize images to this many pixels; 0 keeps them")
    image_column: str = Field("auto", description="column of the images")
    label_column: str = Field("auto", description="column of the labels")
    cache_dir: str = Field("auto", description="where decoded datasets are kept")

    experiment: Name = Field("default", description="under which name SuperNodes keep their states")
    continue_state: bool = Field(
        False,
        description="SuperNodes start from the states of the experiment's last run",
    )
    run_dir: str = Field("auto", description="folder for the results")
    checkpoint_every: CountOrZero = Field(1, description="rounds between checkpoints; 0 for none")
    resume: str = Field("", description="run folder to go on with, from its last checkpoint")
    backend: Literal["ray", "inline"] = Field("ray", description="ray or inline (for debugging)")
    workers: CountOrZero = Field(0, description="Ray actors; 0 for one a core")
    ray_address: str = Field("", description="HOST:PORT of a running Ray cluster to run in")
    lockstep: Literal["auto", "off"] = Field(
        "auto", description="train clients of small models many at a time"
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="where clients train: cpu or cuda")
    verbose: bool = Field(False, description="show Flower's and Ray's own log lines")

    @classmethod
    def of(cls, values: Mapping[str, UserConfigValue]) -> "RunConfig":
        """The configuration from kebab-case keys, checked; values may be strings.

        Raises
        ------
        UserError
            For an unknown key, an unknown name, or a value that is not allowed.
        """
        return _checked(tuple(sorted(values.items())))

    def to_user_config(self) -> UserConfig:
        """All keys with their values, as Flower's run config carries them."""
        return self.model_dump(by_alias=True)

    @property
    def partitioning(self) -> PartitionSpec:
        return PartitionSpec.parse(self.partition)


def allowed_values(key: str) -> str:
    """What a key may be, in words."""
    field = RunConfig.model_fields[key.replace("-", "_")]
    words = [note for note in field.metadata if isinstance(note, str)]
    for kind in (field.annotation, *get_args(field.annotation)):
        if get_origin(kind) is Literal:
            words += [repr(value) for value in get_args(kind)]
        elif get_origin(kind) is Annotated:
            words += [note for note in get_args(kind) if isinstance(note, str)]
        elif kind is bool:
            words.append("true or false")
        elif kind is str and not words:
            words.append("text")
    return " or ".join(dict.fromkeys(words))


@lru_cache(maxsize=64)  # a worker sees the same configuration with every message
def _checked(items: tuple[tuple[str, Any], ...]) -> RunConfig:
    values = dict(items)
    keys = [field.alias or name for name, field in RunConfig.model_fields.items()]
    for key in values:
        if key not in keys:
            raise unknown_name("configuration", key, keys)
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise not_allowed(key, values[key], allowed_values(key)) from None
    for key, value, names in (
        ("strategy", config.strategy, STRATEGIES),
        ("client", config.client, CLIENTS),
        ("objective", config.objective, OBJECTIVES),
        ("model", config.model, MODELS),
    ):
        if value not in names:
            raise unknown_name(key, value, names)
    _check_pair(config)
    InputSpec.parse(config.dataset)
    _check_trust(config)
    config.partitioning.check_clients(config.num_clients)
    if config.fraction_train == 0:
        raise UserError("fraction-train: 0.0 is not allowed; no client would ever train")
    return config


def _check_pair(config: RunConfig) -> None:
    """Refuse one half of a pair, and optimisers whose steps a rule cannot count."""
    strategy, objective = config.strategy, config.objective
    if (needed := STRATEGIES[strategy].partner) and objective != needed:
        raise not_allowed("objective", objective, f"{needed!r}, which goes with strategy {strategy!r}")
    for key, allowed in OBJECTIVES[objective].requires.items():
        value = getattr(config, key.replace("-", "_"))
        if value not in allowed:
            words = " or ".join(map(repr, allowed))
            raise not_allowed(key, value, f"{words}, which goes with objective {objective!r}")
    if strategy == "fednova" and config.client_optimizer != "sgd":
        raise not_allowed("client-optimizer", config.client_optimizer, "'sgd' with strategy 'fednova'")


def _check_trust(config: RunConfig) -> None:
    """Refuse bounds that no round could meet, or that would bound nothing."""
    sampled = max(1, int(config.num_clients * config.fraction_train + 1e-9))
    if config.min_replies > sampled:
        allowed = f"at most {sampled}, the clients that train in a round (num-clients times fraction-train)"
        raise not_allowed("min-replies", config.min_replies, allowed)
    if config.max_num_examples and config.weighting == "uniform":
        raise not_allowed("max-num-examples", config.max_num_examples, "0 with weighting 'uniform'")
