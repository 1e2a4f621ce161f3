"""The keys of a run that do not have a file of their own, in groups; a group's docstring is its title."""

from functools import partial
from typing import Annotated, Literal

from fedbn_flower.clients.modules.optimizers import FORM as OPTIMIZER

from ...core.errors import not_allowed
from ...core.files import absolute
from ...core.ground.settings import KeyGroup, form, setting
from ...core.input_spec import InputSpec
from ...core.named_call import OF_LIBRARY
from ...core.text import GROUPS, SPLIT_BY
from ...data.images.augment import FORMS as AUGMENTATIONS
from ...data.images.augment import calls_of
from ...data.images.sampling import SIZE_FORMS, SIZES, SPACING_FORMS, SPACINGS, WINDOW, WINDOW_FORMS
from ...data.images.shift_spec import FORMS as SHIFT_FORMS
from ...data.images.shift_spec import PLAIN, domains
from ...data.partition.spec import PartitionSpec
from ...data.splits.groups import pattern_of
from ...data.splits.split_by import SplitBy
from ...names import FORMS
from ..schedules import CONSTANT, Schedule
from ..schedules import FORMS as SCHEDULES

Algorithm = Annotated[str, f"a name in --list, {FORMS}"]
Client = Annotated[str, f"a name in --list, {FORMS}, or several: fedbn+fedper"]
Model = Annotated[str, f"a name in --list, {FORMS}, or {OF_LIBRARY}"]
NORMS = (
    "keep, group:G with G groups of channels, layer, instance, none (scale and shift only), scaled-ws, "
    f"hybrid, or {FORMS}"
)
Momentum = Annotated[
    Annotated[float, setting(gt=0, le=1)] | Literal["auto", "cumulative"],
    "auto, cumulative, or a number in (0, 1]",
]
METRICS = f"names in --list with commas, names of torchmetrics, {FORMS}, or none"
EXTENSIONS = f"names in --list with commas, {FORMS}, or none"
EVENTS = "auto, a class, or of several labels LABEL=0 or LABEL=1 with commas"
Size = Annotated[Annotated[int, setting(ge=0)] | Annotated[str, setting(pattern=f"^({SIZES})$")], SIZE_FORMS]
Spacing = Annotated[
    Annotated[float, setting(ge=0)] | Annotated[str, setting(pattern=f"^({SPACINGS})$")], SPACING_FORMS
]
Tolerance = Annotated[Annotated[float, setting(ge=0)] | Literal["auto"], "a number >= 0, or auto"]
Window = Annotated[str, setting(pattern=f"^({WINDOW})$"), WINDOW_FORMS]
Name = Annotated[
    str,
    setting(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"),
    "a name of at most 64 letters, digits, dots, hyphens and underscores",
]
AVAILABILITY_HEADER = ("partition-id", "from", "to")
AVAILABILITY = (
    "always, cycle:PERIOD,ON with 1 <= ON <= PERIOD, or a CSV file with header "
    f"{','.join(AVAILABILITY_HEADER)}"
)


class Run(KeyGroup):
    """What runs"""

    strategy: Algorithm = setting("fedyogi", description="server rule")
    client: Client = setting(
        "fedbn", description="which part of the model stays at a client (BatchNorm, the head) or is personal"
    )
    objective: Algorithm = setting(
        "auto",
        description="what each client minimises locally; auto is what the strategy goes with, or plain",
    )
    problem: Algorithm = setting(
        "auto",
        description="what is learnt; auto infers it from the data: classes, numbers, characters or masks",
    )
    loss: Algorithm = setting("auto", description="what a wrong prediction costs; auto is the usual loss")
    model: Model = setting(
        "auto",
        description="network; auto is the usual one for the data; with client alone, A+B gives the clients "
        "several in turn",
    )
    norm: Annotated[str, NORMS] = setting(
        "keep",
        description="what replaces the model's BatchNorm layers, whatever model it is; keep leaves them, but "
        "with client hbn, which has hybrid",
    )
    bn_momentum: Momentum = setting(
        "auto",
        description="share of a batch in BatchNorm's running statistics; cumulative: their mean over all "
        "batches so far; auto: as the model has it, torch's 0.1",
    )
    reference: Literal["none", "alone", "pooled"] = setting(
        "none",
        description="run a baseline instead: each client trained alone, or one model on all their data in "
        "one place",
    )
    extension: Annotated[str, EXTENSIONS] = setting(
        "none", description="extensions that take part in the run"
    )
    rounds: int = setting(10, ge=1, description="number of rounds")
    seed: int = setting(
        0, ge=0, lt=2**32, description="determines initialisation, partition, sampling and shuffling"
    )
    settings: Annotated[str, "KEY=VALUE ..."] = setting(
        "", description="settings of algorithms as one text, for algorithms from a file under flwr run"
    )


class Data(KeyGroup):
    """Data"""

    dataset: Annotated[str, form(InputSpec.parse)] = setting(
        "scanners",
        description="'scanners', four sites of digits; 'digits', the same of one scanner; a local folder or "
        "file, text:FILE, tokens:TOKENIZER.json:FILE, a Hugging Face name, FILE.py:FUNCTION, "
        "synthetic:ALPHA,BETA, quadratic:DIM, or shape:SIZES:OUTPUTS where only "
        "SuperNodes have data",
    )
    partition: Annotated[str, PartitionSpec.FORMS, form(PartitionSpec.parse, "auto")] = setting(
        "auto",
        description="how the training set is divided; auto is silos for images (0-4,5-9 for digits), the "
        "data's own clients, or iid, as for images whose problem or label columns have no "
        "classes",
    )
    num_clients: int = setting(  # type: ignore[assignment]  # `making` puts a number in the place of auto
        "auto",
        ge=1,
        description="number of partitions of the training set; auto is the number of sites of the data, with "
        "a partition natural, otherwise 2",
    )
    val_fraction: float = setting(
        0.0,
        ge=0,
        lt=1,
        description="share of the training set held out for validation; the test set is then kept for the "
        "end",
    )
    group_column: Annotated[str, GROUPS, form(partial(pattern_of, "group-column"))] = setting(
        "",
        description="column whose values are groups, such as patients: all rows of a group are on one side "
        "of every split, and at one client; of pictures also a pattern of their paths",
    )
    split_by: Annotated[str, SPLIT_BY, form(SplitBy.parse, "")] = setting(
        "",
        description="rows of a table to train on, all others being tested on: those below a number or a "
        "date; the column is no input",
    )
    folds: int = setting(
        0, ge=0, description="cross-validation: so many runs, each tested on another part of all examples"
    )
    fold: int = setting(0, ge=0, description="which of the folds this run is tested on; 0 runs them all")
    normalize: bool | Literal["median"] = setting(
        False,
        description="standardise images per channel and numbers per feature, the same way at all clients: "
        "by the mean and deviation of all values, or with median by the medians of the clients' "
        "means and deviations",
    )
    feature_shift: Annotated[str, SHIFT_FORMS, form(domains)] = setting(
        PLAIN, description="domain in which a client sees its images: client i in domain i, in turn"
    )
    augment: Annotated[str, AUGMENTATIONS, form(calls_of)] = setting(
        "none",
        description="what is done to training images at random: crop-flip shifts them by up to an eighth and "
        "mirrors them, torchvision:RandomRotation:degrees=10 is a transform of a library",
    )
    patch_size: Size = setting(
        0,
        description="train on random parts of this size of images with masks, and evaluate whole ones by "
        "windows of it; 0 trains on whole ones",
    )
    image_size: Size = setting(
        0,
        description="resize images to this many pixels, volumes to as many voxels; with spacing they are cut "
        "or padded to it; 0 keeps them",
    )
    spacing: Spacing = setting(
        0.0,
        description="millimetres between values to which NIfTI and DICOM files are resampled; 0 keeps them",
    )
    window: Window = setting(
        "auto",
        description="intensities of NIfTI and DICOM files that become black and white; auto: each file's "
        "percentiles 0.5 and 99.5",
    )
    image_column: str = setting("auto", description="column of the images")
    label_column: str = setting(
        "auto",
        description="column with the labels; for a table also with its classes, NAME=CLASS|CLASS, or "
        "several: NAME,NAME",
    )
    predict: Literal["auto", "classes", "numbers"] = setting(
        "auto", description="what a table's labels are; auto: numbers if not all whole, or over 100 of them"
    )
    event: Annotated[str, EVENTS] = setting(
        "auto",
        description="which of two classes is the event, which sensitivity, thresholds, calibration and "
        "predictions are about; auto: 1 of 0 and 1, not a word that says no, else the rarer one; does not "
        "change training",
    )
    columns: str = setting(
        "auto",
        description="columns of a table that the model sees, categories with their values: age,sex=f|m",
    )
    missing_values: str = setting(
        "auto",
        description="words that mark missing values in a table, separated by commas; auto: in text files "
        "those of pandas, such as NA and None",
    )
    encoding: str = setting(
        "auto",
        description="encoding of a table's text, as Python calls it: cp1252; auto: UTF-8, UTF-16 with its "
        "mark, or cp1252 if it can be nothing else",
    )
    decimal: Literal["auto", ".", ","] = setting(
        "auto", description="decimal sign of a table; auto: a comma in texts that can mean nothing else"
    )
    thousands: Literal["auto", ".", ",", "'", "space"] = setting(
        "auto",
        description="sign between a table's groups of three digits; auto: that of a text file in which "
        "numbers such as 1.234,50 or 1,234.50 can mean nothing else",
    )
    header_row: int = setting(
        0,
        ge=0,
        description="row of a table's header, as a spreadsheet counts; 0: the first but for comments, or a "
        "title where what is below can be nothing else",
    )
    date_format: str = setting(
        "auto",
        description="how a table's texts write dates, as in strftime: %d.%m.%Y; dates are read as days "
        "since 1970-01-01; auto: a usual form, if it alone fits all of a column",
    )
    cache_dir: str = setting("auto", description="where decoded datasets are cached")


class Training(KeyGroup):
    """Training"""

    local_epochs: int = setting(2, ge=1, description="passes each client makes over its examples in a round")
    batch_size: int = setting(
        32, ge=0, description="examples per step; 0 takes all of a client's examples at once"
    )
    client_optimizer: Annotated[str, OPTIMIZER] = setting(
        "sgd", description="the clients' optimiser: adamw, or with arguments sgd:nesterov=true"
    )
    client_lr: float = setting(0.05, gt=0, description="the clients' learning rate")
    client_lr_schedule: Annotated[str, SCHEDULES, form(Schedule.parse)] = setting(
        CONSTANT, description="factor on the clients' learning rate by round"
    )
    server_lr_schedule: Annotated[str, SCHEDULES, form(Schedule.parse)] = setting(
        CONSTANT, description="factor on server-lr by round, for strategies that have it"
    )
    client_momentum: float = setting(
        0.0, ge=0, lt=1, description="momentum of the clients' optimiser: sgd, rmsprop or muon"
    )
    weight_decay: float = setting(0.0, ge=0, description="weight decay of the clients' optimiser")
    clip_norm: float = setting(
        0.0, ge=0, description="bound on the L2 norm of each gradient at the clients; 0 for none"
    )
    agc: float = setting(
        0.0,
        ge=0,
        description="adaptive gradient clipping: bound on the norm of the gradient of an output's weights, "
        "as a share of the norm of these weights; 0 for none",
    )
    softmax_output: bool = setting(False, description="add a softmax to the model, before the loss")
    weighting: Literal["auto", "num-examples", "uniform"] = setting(
        "auto",
        description="how clients are weighted; auto is num-examples, or uniform with dp, a selection or a "
        "protocol",
    )
    fraction_train: float = setting(1.0, ge=0, le=1, description="share of the clients that train in a round")
    round_timeout: float = setting(3600.0, gt=0, description="seconds to wait for the answers of a phase")


class Start(KeyGroup):
    """Pretrained and partly trained models"""

    init: str = setting(
        "",
        description="weights to start from, those that fit by name and shape: FILE.safetensors, FILE.pt "
        "with a state dict, or the folder of a run",
    )
    init_strict: bool = setting(False, description="refuse weights that do not all fit the model")


class System(KeyGroup):
    """System heterogeneity"""

    stragglers: float = setting(
        0.0,
        ge=0,
        le=1,
        description="probability that a sampled client does only a part of its local work, drawn uniformly",
    )
    drop_stragglers: bool = setting(False, description="discard what stragglers have done")
    dropout: float = setting(0.0, ge=0, lt=1, description="probability that a sampled client never answers")
    availability: Annotated[str, AVAILABILITY] = setting(
        "always",
        description="rounds in which a client can train or evaluate: ON of every PERIOD, from a round drawn "
        "for each client, or the rounds listed in a file",
    )


class Evaluation(KeyGroup):
    """Evaluation"""

    eval_model: Literal["aggregated", "local"] = setting(
        "aggregated",
        description="what a client evaluates: the aggregated model with its local BN, or the local one it "
        "has just trained",
    )
    eval_data: Literal["auto", "global", "local"] = setting(
        "auto",
        description="the whole held-out set, or the client's share of it; auto is local where clients are "
        "sites (partition natural), where a client's model is its own, and for tables that each client "
        "standardises by its own rows; otherwise global; clients without a share train only; the runs of a "
        "sweep are alike",
    )
    fine_tune: int = setting(
        0,
        ge=0,
        description="steps for which a client trains a model before evaluating it; the result is then "
        "discarded",
    )
    fraction_evaluate: float = setting(1.0, ge=0, le=1, description="share of the clients that evaluate")
    final_test: bool = setting(
        True, description="with a validation share, evaluate once on the test set, after the last round"
    )
    evaluate_every: int = setting(
        1, ge=1, description="rounds between evaluations; the last round is always evaluated"
    )
    evaluate_with_training: Literal["auto", "off"] = setting(
        "auto",
        description="auto: Flower's nodes evaluate a round's model with the next round's training, before "
        "it, in one answer, where that gives the same metrics; off: they are asked twice a round",
    )
    metrics: Annotated[str, METRICS] = setting(
        "none",
        description="further metrics, exact over all clients: f1,auroc,sensitivity-at:0.95; the first is "
        "the headline metric, by which runs are compared",
    )
    metrics_by_class: bool = setting(
        False, description="also report those metrics for each class, label or number, such as auroc-NAME"
    )
    thresholds: int = setting(
        1000, ge=10, le=100_000, description="number of score thresholds for auroc and average-precision"
    )
    surface_tolerance: Tolerance = setting(
        "auto",
        description="distance up to which surface-dice takes two surfaces for the same: millimetres with "
        "spacing, else pixels; auto: the largest side of a voxel",
    )
    leave_one_site_out: bool = setting(
        False,
        description="a run for each client, which does not train and is evaluated at the end as a new one, "
        "with and without BatchNorm statistics of its own",
    )
    left_out: int = setting(
        -1, ge=-1, description="which client leave-one-site-out leaves out in this run; -1 runs them all"
    )


class Runtime(KeyGroup):
    """Runtime"""

    backend: Literal["auto", "inline", "ray"] = setting(
        "auto",
        description="where clients run: inline is this process, ray is Ray's workers; auto starts here and "
        "moves to these once that saves time",
    )
    workers: int = setting(
        0,
        ge=0,
        description="number of Ray actors, by default one per core, or per GPU with device cuda; on a GPU, "
        "of a sweep's runs side by side",
    )
    ray_address: str = setting("", description="HOST:PORT of a running Ray cluster to use")
    fast: Literal["auto", "always", "off"] = setting(
        "auto",
        description="train clients many at a time where this is known to be correct: auto where it should be "
        "faster, always wherever it can be",
    )
    device: Literal["cpu", "cuda"] = setting("cpu", description="where clients train")
    precision: Literal["fp32", "bf16", "fp16"] = setting(
        "fp32", description="precision of forward passes, by autocast; everything else is fp32"
    )
    verbose: bool = setting(False, description="show the log lines of Flower and Ray")


class Folder(KeyGroup):
    """Results and memories"""

    run_dir: str = setting("auto", description="folder for the results")
    title: str = setting("", description="title of the report; empty for what was trained on what")
    checkpoint_every: int = setting(1, ge=0, description="rounds between checkpoints; 0 for none")
    track: Literal["none", "mlflow", "tensorboard", "wandb"] = setting(
        "none", description="experiment tracker that gets the configuration and every round (extras)"
    )
    inspect: bool = setting(
        False, description="train nothing: SuperNodes send counts of their data, which a page shows"
    )
    resume: str = setting("", description="run folder to continue, from its last checkpoint")
    memory_name: Name = setting("default", description="name under which SuperNodes keep their memories")
    continue_state: bool = setting(
        False, description="SuperNodes start from the memories that their last run left under that name"
    )
    keep_memories: float = setting(
        0.0,
        ge=0,
        description="days after which SuperNodes delete the memories of this run if it never ends; 0 for "
        "never",
    )


def cycle_of(text: str) -> tuple[int, int] | None:
    """PERIOD and ON of ``cycle:PERIOD,ON``; None for any other text.

    Raises
    ------
    UserError
        Unless both are integers with 1 <= ON <= PERIOD.
    """
    kind, _, argument = text.partition(":")
    if kind != "cycle":
        return None
    try:
        period, on = map(int, argument.split(","))
    except ValueError:
        raise not_allowed("availability", text, AVAILABILITY) from None
    if not 1 <= on <= period < 2**63:
        raise not_allowed("availability", text, AVAILABILITY)
    return period, on


def absolute_availability(text: str) -> str:
    """The value with a file's path made absolute, for a process in another folder.

    Raises
    ------
    UserError
        For an invalid cycle.
    """
    return text if text == "always" or cycle_of(text) else absolute(text)
