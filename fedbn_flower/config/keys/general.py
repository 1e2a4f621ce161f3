"""The keys of a run that have no file of their own, in groups; each group's docstring is its title."""

from typing import Annotated, Literal

from pydantic import Field as setting

from fedbn_flower.clients.modules.optimizers import FORM as OPTIMIZER

from ...core.key_group import KeyGroup
from ...data.images.shift_spec import FORMS as SHIFT_FORMS
from ...data.images.shift_spec import PLAIN
from ...data.partition.spec import PartitionSpec
from ...names import FORMS
from ..schedules import CONSTANT
from ..schedules import FORMS as SCHEDULES
from .availability import AVAILABILITY

Algorithm = Annotated[str, f"a name in --list, {FORMS}"]
Client = Annotated[str, f"a name in --list, {FORMS}, or several: fedbn+fedper"]
METRICS = f"names in --list with commas, names of torchmetrics, {FORMS}, or none"
EXTENSIONS = f"names in --list with commas, {FORMS}, or none"
Name = Annotated[
    str,
    setting(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"),
    "a name of at most 64 letters, digits, dots, hyphens and underscores",
]


class Run(KeyGroup):
    """What runs"""

    strategy: Algorithm = setting("fedyogi", description="server rule")
    client: Client = setting("fedbn", description="what stays at home (BatchNorm, the head), or is personal")
    objective: Algorithm = setting("plain", description="what a client minimises locally")
    problem: Algorithm = setting(
        "auto",
        description="what is learnt; auto follows from the data: classes, numbers, characters or masks",
    )
    loss: Algorithm = setting("auto", description="what a wrong prediction costs; auto is the usual loss")
    model: Algorithm = setting(
        "auto",
        description="network; auto is the usual one for the data, A+B are several in turn, with client alone",
    )
    reference: Literal["none", "alone", "pooled"] = setting(
        "none",
        description="instead of it what it is compared with: each client trained alone, or one model on all "
        "their data in one place",
    )
    extension: Annotated[str, EXTENSIONS] = setting("none", description="what else takes part in the run")
    rounds: int = setting(10, ge=1, description="rounds")
    seed: int = setting(
        0, ge=0, lt=2**32, description="decides initialisation, partition, sampling and shuffling"
    )
    settings: Annotated[str, "KEY=VALUE ..."] = setting(
        "", description="settings of algorithms in one text, for algorithms from a file under flwr run"
    )


class Data(KeyGroup):
    """Data"""

    dataset: str = setting(
        "scanners",
        description="'scanners', four sites of digits; 'digits', the same of one scanner; a local folder or "
        "file, text:FILE, tokens:TOKENIZER.json:FILE, a Hugging Face name, FILE.py:FUNCTION, "
        "synthetic:ALPHA,BETA, quadratic:DIM, or shape:SIZES:OUTPUTS where only "
        "SuperNodes have data",
    )
    partition: Annotated[str, PartitionSpec.FORMS] = setting(
        "auto",
        description="how the training set is divided; auto is silos for images (of digits 0-4,5-9), by the "
        "clients that the data have, or iid, as for images whose problem or label columns have no classes",
    )
    num_clients: int = setting(  # type: ignore[assignment]  # `making` puts a number in the place of auto
        "auto",
        ge=1,
        description="number of partitions of the training set; auto is 2, or the 4 sites of 'scanners'",
    )
    val_fraction: float = setting(
        0.0, ge=0, lt=1, description="share of the training set kept apart; the test set is then for the end"
    )
    normalize: bool | Literal["median"] = setting(
        False,
        description="standardise images per channel, numbers per feature, alike at all clients: by mean and "
        "deviation of all values, or with median by the medians of the clients' means and deviations",
    )
    feature_shift: Annotated[str, SHIFT_FORMS] = setting(
        PLAIN, description="in which domain a client sees its images: client i in that of number i, in turn"
    )
    augment: Literal["none", "crop-flip"] = setting(
        "none", description="training images are shifted by up to an eighth, and mirrored, at random"
    )
    image_size: int = setting(0, ge=0, description="resize images to this many pixels; 0 keeps them")
    image_column: str = setting("auto", description="column of the images")
    label_column: str = setting(
        "auto",
        description="column of the labels; of a table also with its classes, NAME=CLASS|CLASS, or several: "
        "NAME,NAME",
    )
    predict: Literal["auto", "classes", "numbers"] = setting(
        "auto", description="what a table's labels are; auto: numbers if not all whole, or over 100 of them"
    )
    columns: str = setting(
        "auto",
        description="columns of a table that the model sees, a category's with its values: age,sex=f|m",
    )
    missing_values: str = setting(
        "auto",
        description="words of a table that are missing values, with commas; auto: in text files those of "
        "pandas, such as NA and None",
    )
    cache_dir: str = setting("auto", description="where decoded datasets are kept")


class Training(KeyGroup):
    """Training"""

    local_epochs: int = setting(2, ge=1, description="passes over its examples a client makes in a round")
    batch_size: int = setting(32, ge=0, description="0 takes all of a client's examples at once")
    client_optimizer: Annotated[str, OPTIMIZER] = setting(
        "sgd", description="optimiser of the clients: adamw, or with arguments sgd:nesterov=true"
    )
    client_lr: float = setting(0.05, gt=0, description="learning rate of the clients")
    client_lr_schedule: Annotated[str, SCHEDULES] = setting(
        CONSTANT, description="factor on the clients' rate by round"
    )
    server_lr_schedule: Annotated[str, SCHEDULES] = setting(
        CONSTANT, description="factor on server-lr by round, of a strategy that has it"
    )
    client_momentum: float = setting(
        0.0, ge=0, lt=1, description="momentum of the clients' optimiser: of sgd, rmsprop or muon"
    )
    weight_decay: float = setting(0.0, ge=0, description="weight decay of the clients' optimiser")
    clip_norm: float = setting(0.0, ge=0, description="clients: bound on each gradient's L2 norm; 0 for none")
    softmax_output: bool = setting(False, description="put a softmax into the model, before the loss")
    weighting: Literal["auto", "num-examples", "uniform"] = setting(
        "auto",
        description="what weighs a client; auto is num-examples, or uniform with dp, a selection or a "
        "protocol",
    )
    fraction_train: float = setting(1.0, ge=0, le=1, description="share of the clients that train in a round")
    round_timeout: float = setting(3600.0, gt=0, description="seconds to wait for a phase's answers")


class Start(KeyGroup):
    """Pretrained and partly trained models"""

    init: str = setting(
        "",
        description="weights to start from, those that fit by name and shape: FILE.safetensors, FILE.pt with "
        "a state dict, or a run's folder",
    )
    init_strict: bool = setting(False, description="refuse weights of which not all fit the model")


class System(KeyGroup):
    """System heterogeneity"""

    stragglers: float = setting(
        0.0, ge=0, le=1, description="probability that a sampled client does a uniform part of its local work"
    )
    drop_stragglers: bool = setting(False, description="what stragglers have done is not used")
    dropout: float = setting(
        0.0, ge=0, lt=1, description="probability that a sampled client's answer never comes"
    )
    availability: Annotated[str, AVAILABILITY] = setting(
        "always",
        description="in which rounds a client is there, to train or to evaluate: ON of every PERIOD, from a "
        "round drawn for each client, or the rounds that a file names",
    )


class Evaluation(KeyGroup):
    """Evaluation"""

    eval_model: Literal["aggregated", "local"] = setting(
        "aggregated",
        description="what a client evaluates: the aggregated model with its local BN, "
        "or the local one it has just trained",
    )
    eval_data: Literal["auto", "global", "local"] = setting(
        "auto",
        description="the whole held-out set, or the client's share of it; auto is local for tables (each "
        "client standardises by its rows) and for a test set that is given by client, where every client has "
        "a share, otherwise global",
    )
    fine_tune: int = setting(
        0, ge=0, description="steps that a client trains what it evaluates before it does, and then forgets"
    )
    fraction_evaluate: float = setting(1.0, ge=0, le=1, description="share of the clients that evaluate")
    final_test: bool = setting(
        True, description="with a validation share, evaluate once on the test set after the last round"
    )
    evaluate_every: int = setting(1, ge=1, description="rounds between evaluations; the last has one anyway")
    metrics: Annotated[str, METRICS] = setting(
        "none",
        description="further metrics, exact over all clients: f1,auroc,sensitivity-at:0.95; the first is the "
        "headline, by which runs are compared",
    )
    metrics_by_class: bool = setting(
        False, description="report those metrics for each class, label or number too, such as auroc-NAME"
    )
    thresholds: int = setting(
        1000, ge=10, le=100_000, description="thresholds of the scores, of auroc and average-precision"
    )


class Runtime(KeyGroup):
    """Runtime"""

    backend: Literal["auto", "inline", "ray"] = setting(
        "auto",
        description="where clients run: inline is this process, ray its workers; auto begins here and "
        "moves to Ray's workers once they save time",
    )
    workers: int = setting(0, ge=0, description="Ray actors; 0 for one a core")
    ray_address: str = setting("", description="HOST:PORT of a running Ray cluster to run in")
    fast: Literal["auto", "off"] = setting(
        "auto", description="train clients of small models many at a time, where that is known to be right"
    )
    device: Literal["cpu", "cuda"] = setting("cpu", description="where clients train")
    precision: Literal["fp32", "bf16", "fp16"] = setting(
        "fp32", description="in which forward passes compute, by autocast; all else is fp32"
    )
    verbose: bool = setting(False, description="show the log lines of Flower and Ray")


class Folder(KeyGroup):
    """Results and memories"""

    run_dir: str = setting("auto", description="folder for the results")
    checkpoint_every: int = setting(1, ge=0, description="rounds between checkpoints; 0 for none")
    track: Literal["none", "mlflow", "tensorboard", "wandb"] = setting(
        "none", description="tracker of experiments that gets the configuration and every round (extras)"
    )
    inspect: bool = setting(
        False, description="train nothing; SuperNodes send counts of their data, and a page shows them"
    )
    resume: str = setting("", description="run folder to go on with, from its last checkpoint")
    memory_name: Name = setting("default", description="under which name SuperNodes keep their memories")
    continue_state: bool = setting(
        False, description="SuperNodes start from the memories under that name that their last run left"
    )
    keep_memories: float = setting(
        0,
        ge=0,
        description="days after which SuperNodes remove memories of this run if it never ends; 0 for never",
    )
