"""The run configuration: its keys, and the settings of the algorithms that it names."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import UserConfig

from .. import annexes
from ..core.ground.columns import TEST, VALIDATION
from ..core.ground.settings import setting
from ..core.process_cache import process_cache
from ..data.column_text import split_words
from ..data.partition.spec import PartitionSpec
from ..data.readers.digits import DIGITS, SCANNERS, SITE
from ..data.readers.made import QUADRATIC, SYNTHETIC
from ..data.sources import ARRAYS, OF_MASKS, is_function
from ..data.text import TEXT, TOKENS
from ..extensions import ExtensionKeys, ServerHook, built_in
from ..extensions.selection import UNIFORM, clients_a_round
from ..names import CLIENT, OBJECTIVE, PROBLEM
from ..privacy.private_run import against_server
from . import keys
from .keys import RUN_KEYS
from .named_algorithms import NOT_GIVEN, Setting, flags
from .schedules import CONSTANT, Schedule

OF_SCANNERS = {"model": "mlp-bn", "partition": f"natural:{SITE}"}
OF_DIGITS = {"model": "mlp-bn", "partition": "silos:0-4,5-9"}
TABLES = {"model": "mlp-bn", "partition": "iid"}
PLAYS = {"model": "char-lstm", "partition": "natural:speaker"}
MASKS = {"model": "unet", "partition": "iid"}
MADE = {"model": "linear", "partition": "natural:client"}
EMBEDDED = {SCANNERS: OF_SCANNERS, DIGITS: OF_DIGITS}
UP_TO_0_2_0 = DIGITS
"""The default dataset of version 0.2.0."""
BEGINNINGS = {
    TEXT: PLAYS,
    TOKENS: PLAYS,
    SYNTHETIC: MADE,
    QUADRATIC: MADE,
    ARRAYS: TABLES,
    "shape:": TABLES,
}


def defaults_for(dataset: str, numbers: bool = False) -> dict[str, str]:
    """``model`` and ``partition`` for a dataset of this name; ``numbers``: whether it is a regression."""
    if dataset in EMBEDDED:
        return EMBEDDED[dataset]
    if dataset.startswith("shape:") and dataset.endswith(":characters"):
        return {**PLAYS, "partition": "iid"}
    if dataset.startswith(("shape:", ARRAYS)) and dataset.endswith(OF_MASKS):
        return MASKS
    for beginning, chosen in BEGINNINGS.items():
        if dataset.startswith(beginning):
            return chosen
    if is_function(dataset):
        return TABLES
    of_files: Callable[[str, bool], dict[str, str]] = annexes.load("usual", "files", f"dataset: {dataset}")
    return of_files(dataset, numbers)


class RunConfig(
    keys.Folder,
    keys.Runtime,
    keys.Evaluation,
    keys.System,
    keys.Start,
    keys.Training,
    keys.Data,
    keys.Run,
    ExtensionKeys,
):
    """The configuration of one run; constructed by `making.run_config`."""

    algorithm_settings: tuple[tuple[str, Setting], ...] = setting((), exclude=True)
    """The settings of its algorithms by flag, including defaults."""

    def to_user_config(self) -> UserConfig:
        """All keys and settings with their values, as Flower's run config carries them."""
        flat = {key: NOT_GIVEN if value is None else value for key, value in self.algorithm_settings}
        values = self.model_dump(by_alias=True)
        return {key: values[key] for key in RUN_KEYS} | flat

    def settings_for(self, cls: type) -> dict[str, Any]:
        """Return the settings of a class in this run, by attribute."""
        known = {**self.model_dump(by_alias=True), **dict(self.algorithm_settings)} if flags(cls) else {}
        return {name: known[key] for key, name in flags(cls).items() if key in known}

    def messages_for(self, cls: type) -> UserConfig:
        """Return the same by flag, as messages carry it; settings without a value are left out."""
        values = self.settings_for(cls)
        return {key: values[name] for key, name in flags(cls).items() if values.get(name) is not None}

    @property
    def client_settings(self) -> UserConfig:
        """The settings of the client and of the objective, as train messages carry them."""
        client, objective = CLIENT.find(self.client), OBJECTIVE.find(self.objective)
        return {**self.messages_for(client), **self.messages_for(objective)}

    def scheduled_rates(self, server_round: int) -> dict[str, float]:
        """Return a round's learning rates by key: ``client-lr`` and ``server-lr``, if scheduled."""
        schedules = {"client-lr": self.client_lr_schedule, "server-lr": self.server_lr_schedule}
        base: dict[str, Any] = {**dict(self.algorithm_settings), "client-lr": self.client_lr}
        return {
            key: base[key] * Schedule.parse(text).factor(server_round, self.rounds)
            for key, text in schedules.items()
            if text != CONSTANT
        }

    @property
    def built_in_extensions(self) -> Sequence[type[ServerHook]]:
        """The built-in extensions of the run, in the order from the wire."""
        return _built_in(self)

    def brought(self, kind: str) -> Iterable[Any]:
        """Return the objects of a kind from the annexes that the run asks for."""
        defaults = {key: field.default for key, field in RUN_KEYS.items()}
        return annexes.brought(kind, annexes.asked_for(self.model_dump(by_alias=True), defaults)).values()

    @property
    def num_training(self) -> int:
        """The number of clients that may train: all that are not held out."""
        return self.num_clients - self.holdout_clients

    @property
    def clients_a_round(self) -> int:
        """The number of clients that train in a round; 1 with ``reference pooled``; the size of a buffer."""
        return clients_a_round(self.num_training, self.fraction_train, self.reference, self.asynchronous)

    @property
    def may_end_early(self) -> bool:
        """Whether the metrics of a round can end the run."""
        return self.patience > 0 or self.stop_at_target

    @property
    def tests_each_round(self) -> bool:
        """Whether each round that is evaluated is tested: any may be the one that is kept, or the last."""
        return self.may_end_early or self.keeps_best

    @property
    def clients_report(self) -> bool:
        """Whether clients send metrics.

        Under privacy notions that hold against the server they do if ``dp-metrics`` gives it a budget.
        """
        return not self.against_server or self.dp_metrics > 0

    @property
    def against_server(self) -> bool:
        """Whether ``dp`` holds against the server, too."""
        return against_server(vars(self))

    @property
    def share_evaluating(self) -> float:
        """The share of the clients that are asked to evaluate: ``fraction-evaluate``, or 0."""
        return self.fraction_evaluate if self.clients_report else 0.0

    @property
    def clients_evaluate(self) -> bool:
        """Whether clients evaluate on held-out examples."""
        return self.clients_report and (self.eval_model == "local" or self.fraction_evaluate > 0)

    def held_out_splits(self, final: bool) -> str:
        """The splits that a round evaluates on: the test set, unless a validation share replaces it."""
        if not self.val_fraction:
            return TEST
        return f"{VALIDATION},{TEST}" if final and self.final_test else VALIDATION

    @property
    def usual_choices(self) -> dict[str, str]:
        """Defaults that depend on other keys: ``model`` and ``partition`` on the dataset's name, labels and
        problem; ``weighting`` is uniform if privacy, a selection or asynchrony requires it.
        """
        problem = None if self.problem == NOT_GIVEN else PROBLEM.find(self.problem)
        several = "=" not in self.label_column and len(split_words(self.label_column)) > 1
        alike = self.dp in ("client", "local") or self.selection != UNIFORM or self.asynchronous
        numbers = several or (problem is not None and problem.learns == "numbers")
        return defaults_for(self.dataset, numbers) | {"weighting": "uniform" if alike else "num-examples"}

    @property
    def partitioning(self) -> PartitionSpec:
        return PartitionSpec.parse(self.partition)


@process_cache(maxsize=64)  # every message asks for its run's several times
def _built_in(config: RunConfig) -> Sequence[type[ServerHook]]:
    return built_in(config.model_dump(by_alias=True))
