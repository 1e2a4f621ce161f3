"""`FedAvgClient`, the base of every client: load, train, evaluate. Subclasses choose what stays local."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import set_values, values
from fedbn_flower.core.ground.wire import (
    ADAPT_BN,
    CASES,
    CLASSES,
    CLIENT_LR,
    EVAL_SPLITS,
    FINE_TUNE,
    LOCAL_STEPS,
    OWN_STATISTICS,
    RECALIBRATE,
    SERVER_ROUND,
    START_LOSS,
    TRAIN_EXAMPLES,
)

from .memory import Arrays, ContextStore, Memory
from .modules.arrays import aliases, to_array, viewed
from .modules.batch_norm import batch_norm_statistics, estimate_statistics
from .modules.first_values import begin_anew
from .modules.frozen import split, still_modules
from .modules.lazy_torch import nn, torch
from .modules.surroundings import usual_surroundings
from .objectives import Local, Objective, Outcome
from .objectives.base import Plain
from .problems import Problem
from .problems.evaluation import evaluate_splits, evaluation_batch, mean_loss
from .returned import WrongResult, kept_at_home
from .training import FineTuning, LocalRun, LocalTask, first_batch, load_entries, train_model
from .update import NamedArrays, Received, Records, Update, by_name

Value = TypeVar("Value")


class FedAvgClient(NumPyClient):
    """Shares the whole model, BatchNorm statistics included (McMahan et al. 2017).

    Subclasses keep entries local by overriding `local_entries`. Declared settings are
    attributes.

    Raises
    ------
    ValueError
        When a tied tensor is local under one of its names and shared under another.
    """

    purpose = "Shares the whole model, BatchNorm statistics included: where to begin."
    helps: ClassVar[tuple[str, ...]] = ("baseline",)
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    paper = "mcmahan2017fedavg"

    LOCAL_GROUP = "local"
    decides: ClassVar[str] = ""
    """What the policy decides, in words. Two policies that decide the same cannot be combined."""
    also_decides: ClassVar[frozenset[str]] = frozenset()
    """What else it decides, in the same way."""
    remembers: ClassVar[bool] = False
    """Whether its memory has more than its local entries."""
    trains_head: ClassVar[bool] = True
    """Whether it trains the head, and not the body alone."""
    norm: ClassVar[str] = ""
    """The norm that its model has by default; empty for the model's own BatchNorm."""
    pooled_by: ClassVar[str] = ""
    """Flag of the setting that says how far BatchNorm statistics move to those that clients gather in a round
    and the server pools; empty if clients send the statistics themselves."""
    pulled_by: ClassVar[tuple[str, int]] = ("", 1)
    """As `Objective.pulled_by`, of a personal model."""
    personal_group: ClassVar[str] = ""
    """Memory group of what makes the model that it evaluates a `personal` one; empty if it evaluates the
    shared model with its local entries."""

    def __init__(self, task: LocalTask, memory: Memory) -> None:
        self.task = task
        self.memory = memory
        set_values(self, task.client_settings)
        local = kept_at_home(type(self), task.model)
        self.aliases = aliases(task.model)
        """All names of a tied tensor, by each of its names."""
        for name, names in self.aliases.items():
            if name in local and not local.issuperset(names):
                raise ValueError(
                    f"{' and '.join(names)} are one tensor: local under one name, shared under another"
                )
        self.shared_names, self.local_names, self.constant_names = split(task.initial, local, task.constant)
        self.still = still_modules(task.model, task.constant)
        """The names of the modules that are in evaluation mode during training."""
        self.trained_names = [
            name for name, p in task.model.named_parameters() if p.requires_grad and name not in local
        ]
        """The shared, trainable parameters, each under one name: the parameters of the local objective."""
        self.objective_group = task.objective.__name__.lower()
        """Memory group of the objective."""

    @staticmethod
    def local_entries(model: nn.Module) -> Iterable[str]:
        """Return the names of the state dict's entries that never leave this client, in any order."""
        return frozenset()

    @staticmethod
    def personal(entries: Arrays, kept: Arrays) -> Arrays:
        """Return the entries that differ in the model that a client evaluates.

        Parameters
        ----------
        entries : Mapping[str, NDArray]
            The whole shared model, with the client's local entries.
        kept : Mapping[str, NDArray]
            The client's `personal_group`; by default these are entries.
        """
        return kept

    @classmethod
    def misfit(cls, model: nn.Module, problem: Problem, inputs: torch.Tensor) -> str:
        """Return why this client cannot use a model, in words; "" if it can. ``inputs`` are two examples."""
        return ""

    def get_parameters(self, config: dict[str, Scalar]) -> NamedArrays:
        """Return the model's shared entries, in the order of `shared_names`."""
        return self._sent(self.task.model.state_dict())

    @usual_surroundings()
    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> Update:
        """Train from the received shared entries and the client's local entries.

        Parameters
        ----------
        parameters : list[NDArray]
            The shared entries: a `Received` with names and further records, or a plain list in the order of
            `shared_names`.
        config : dict
            ``server-round``, ``client-lr``, the objective's settings by flag (``mu``), and ``eval-splits``:
            comma-separated splits on which to evaluate the trained model. ``fine-tune`` more steps come
            before evaluation and are then discarded, as are BatchNorm statistics with ``adapt-bn``.
            ``classes``, the number of classes, adds counts by class; ``start-loss`` the training loss of the
            model before.

        Raises
        ------
        FloatingPointError
            When training diverged; the client's memory is unchanged.
        """
        entries = self.task.model.state_dict()
        self.load(entries, parameters)
        records = parameters.records if isinstance(parameters, Received) else {}
        run = self.begin_run(dict(self.task.model.named_parameters()), config, records)
        before = self.before_training(entries, config)
        trained: object = self.train(run, config)
        if not (isinstance(trained, Mapping) and LOCAL_STEPS in trained):
            raise WrongResult(self, "train", trained, f"the run's metrics, {LOCAL_STEPS!r} among them")
        return self.end_run(run, {**trained, **before}, entries, config)

    @usual_surroundings()
    def first_answer(self, parameters: NDArrays, config: dict[str, Scalar]) -> Records:
        """Return the objective's answer to a question before a round's training.

        The arguments are those of `fit`. Nothing is remembered.
        """
        records = parameters.records if isinstance(parameters, Received) else {}
        self.load(self.task.model.state_dict(), parameters)
        run = self.begin_run(dict(self.task.model.named_parameters()), config, records)
        run.objective.first_batch = partial(first_batch, self.task.model, run)
        found = run.objective.first_answer()
        return {name: self._by_every_name(arrays) for name, arrays in found.items()}

    def before_training(
        self, entries: Mapping[str, torch.Tensor], config: Mapping[str, Scalar]
    ) -> dict[str, float]:
        """Return the metrics that the server asks for, of the model at the start of a round's training.

        ``start-loss`` is the mean training loss f on all of the client's examples, in evaluation mode.
        """
        task = self.task
        if not config.get(START_LOSS):
            return {}
        task.model.load_state_dict(dict(entries))
        loss = task.loss(task.problem, task.train, task.loss_settings)
        return {START_LOSS: mean_loss(task.model, task.train, loss)}

    def still_in(self, server_round: int) -> frozenset[str]:
        """Return the names of the modules that are in evaluation mode during a round's training."""
        return self.still

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        """Train the loaded model in place and return the run's metrics."""
        return train_model(self.task.model, run)

    def with_objective(self, objective: type[Objective]) -> Self:
        """Return this client with another objective and no memory. Use it for its `begin_run`."""
        return type(self)(replace(self.task, objective=objective), Memory(ContextStore()))

    @usual_surroundings()
    def begin_run(
        self, parameters: Mapping[str, torch.Tensor], config: Mapping[str, Scalar], records: Records
    ) -> LocalRun:
        """Return the round's local training. ``parameters`` have the values of the model to start from."""
        task = self.task
        server_round = int(config[SERVER_ROUND])
        rate = float(config[CLIENT_LR])
        trained = {n: parameters[n] for n in self.trained_names}
        objective = task.objective(
            trained,
            values(task.objective, config),
            self.memory.read(self.objective_group),
            {name: self._by_one_name(arrays) for name, arrays in records.items()},
            task.problem,
            Local(
                task.model,
                task.train,
                task.loss(task.problem, task.train, task.loss_settings),
                task.constant,
                task.initial,
            ),
        )
        seed, share = (*task.seed, server_round), task.share(server_round)
        mechanism = task.private(server_round) if task.private else None
        given = task.train, task.training, objective, rate, seed, share, self.still_in(server_round)
        return LocalRun(*given, mechanism, task.units)

    def end_run(
        self,
        run: LocalRun,
        metrics: dict[str, float],
        entries: Mapping[str, torch.Tensor],
        config: Mapping[str, Scalar],
        copy: bool = True,
    ) -> Update:
        """Write the client's memory and return the result of `fit`, from the trained model's entries.

        Without ``copy`` its arrays may share the entries' memory.
        """
        self.check_finite(entries)
        outcome = run.objective.finish(run.work(int(metrics[LOCAL_STEPS])))
        if not isinstance(outcome, Outcome):
            raise WrongResult(run.objective, "finish", outcome, "an Outcome")
        metrics |= outcome.metrics
        if outcome.memory is not None:
            if not isinstance(outcome.memory, Mapping):
                raise WrongResult(run.objective, "finish", outcome.memory, "arrays by name as the memory")
            if not run.objective.remembers:
                raise TypeError(
                    f"{type(run.objective).__name__} returns a memory but does not set `remembers`"
                )
            self.memory.write(self.objective_group, outcome.memory)
        if self.local_names:
            self.memory.write(self.LOCAL_GROUP, {name: to_array(entries[name]) for name in self.local_names})
        records = {name: self._by_every_name(arrays) for name, arrays in outcome.records.items()}
        sent = self._sent(entries, copy)
        if outcome.sent:
            sent = NamedArrays({**sent.by_name(), **self._by_every_name(outcome.sent)})
        update = Update(sent, self.task.size, dict(metrics), records)
        if config[EVAL_SPLITS]:
            self.task.model.load_state_dict(dict(entries))
            self.personalise()
            update.metrics.update(self.held_out_metrics(config))
        return update

    def check_finite(self, entries: Mapping[str, torch.Tensor]) -> None:
        """Refuse a model that is not finite after training.

        Raises
        ------
        FloatingPointError
            For the first entry that is not finite and differs from the initial model there.
        """
        names = [name for name, entry in entries.items() if entry.is_floating_point()]
        if not names:
            return
        lengths = torch._foreach_norm([entries[name] for name in names])
        if not torch.stack(lengths).isfinite().all():
            for name, length in zip(names, lengths, strict=True):
                if not length.isfinite() and self._has_diverged(name, entries[name]):
                    raise FloatingPointError(f"training diverged: {name} is not finite")

    @usual_surroundings()
    def evaluate(
        self, parameters: NDArrays, config: dict[str, Scalar]
    ) -> tuple[float, int, dict[str, Scalar]]:
        """Evaluate the received shared entries with the client's local entries, on ``eval-splits``.

        With ``fine-tune`` the config also has the learning rate keys of `fit`. With ``own-statistics`` the
        client is a new one, see `load_as_new`.
        """
        if OWN_STATISTICS in config:
            self.load_as_new(parameters, bool(config[OWN_STATISTICS]))
        else:
            self.load_to_evaluate(parameters)
        return self.answered(self.held_out_metrics(config), config)

    def answered(
        self, found: Mapping[str, Any], config: Mapping[str, Scalar]
    ) -> tuple[float, int, dict[str, Scalar]]:
        """Return the result of `evaluate`, given the metrics of ``eval-splits``."""
        metrics: dict[str, Scalar] = dict(found)
        split = str(config[EVAL_SPLITS]).split(",", maxsplit=1)[0]
        metrics[TRAIN_EXAMPLES] = len(self.task.train)
        return float(metrics.pop("loss")), len(self.task.evaluation[split]), metrics

    def load_to_evaluate(self, parameters: NDArrays) -> None:
        """Load the model that the client evaluates.

        A client that never trained has no local BatchNorm statistics yet. It first estimates them on its
        training examples (AdaBN).
        """
        model = self.task.model
        known = self.load(model.state_dict(), parameters)
        if not self.personalise() and not known and batch_norm_statistics(model) & set(self.local_names):
            self._estimate_statistics()

    def personalise(self) -> bool:
        """Make the loaded model the `personal` one. Return whether the client has one."""
        kept = self.memory.read(self.personal_group) if self.personal_group else None
        if kept is None:
            return False
        entries = self.task.model.state_dict()
        shared = {name: to_array(entry) for name, entry in entries.items()}
        load_entries(entries, self.completed({**shared, **self.personal(shared, kept)}))
        return True

    def remember(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Write the `personal_group`. Names that begin with a dot are not entries of the model.

        Raises
        ------
        FloatingPointError
            For values that are not finite, as `check_finite`.
        """
        self.check_finite({name: entry for name, entry in kept.items() if name in self.task.initial})
        for name, entry in kept.items():
            if name not in self.task.initial and not entry.isfinite().all():
                raise FloatingPointError(f"training diverged: {name[1:]} is not finite")
        self.memory.write(self.personal_group, {name: to_array(entry) for name, entry in kept.items()})

    def predictor(self) -> nn.Module:
        """Return the module to evaluate once the model is loaded; by default the model."""
        return self.task.model

    def load_as_new(self, parameters: NDArrays, own_statistics: bool) -> None:
        """Load the model for a client that takes no part in training.

        Local entries have their initial values. BatchNorm statistics, whether shared or local, are estimated
        on its training examples (AdaBN) or kept.
        """
        self.load(self.task.model.state_dict(), parameters)
        if own_statistics and batch_norm_statistics(self.task.model):
            self._estimate_statistics()

    def _estimate_statistics(self) -> None:
        task = self.task
        batch_size = evaluation_batch(task.train, task.problem)
        estimate_statistics(task.model, task.train, batch_size, task.seed, self.still)

    def held_out_metrics(self, config: Mapping[str, Scalar]) -> dict[str, Any]:
        """Evaluate the loaded model on ``eval-splits``, after ``fine-tune`` steps of plain training.

        With ``adapt-bn`` its BatchNorm statistics are then estimated on the client's training examples,
        except for a new client that has to use the received ones.

        The result is that of `evaluate_splits`.
        """
        task = self.task
        begin_anew(task.model)
        if steps := int(config.get(FINE_TUNE, 0)):
            parameters = dict(task.model.named_parameters())
            run = self.with_objective(Plain).begin_run(parameters, config, {})
            train_model(task.model, FineTuning.like(run, steps))
        if config.get(ADAPT_BN) and config.get(OWN_STATISTICS, True) and batch_norm_statistics(task.model):
            self._estimate_statistics()
        return self.metrics_of(self.predictor(), config)

    def metrics_of(self, model: nn.Module, config: Mapping[str, Scalar]) -> dict[str, Any]:
        """Evaluate a module on ``eval-splits``. The result is that of `evaluate_splits`."""
        task, splits = self.task, str(config[EVAL_SPLITS])
        classes = int(config.get(CLASSES, 0)) if task.tells_classes else 0
        cases_of = str(config.get(RECALIBRATE, config.get(CASES, "")))
        return evaluate_splits(model, task.evaluation, splits, task.problem, classes, cases_of)

    def load(self, entries: Mapping[str, torch.Tensor], parameters: NDArrays) -> bool:
        """Load every entry of a model. Return whether the local entries come from this client's memory."""
        begin_anew(self.task.model)
        memory = self.memory.read(self.LOCAL_GROUP) if self.local_names else None
        local = {name: array for name, array in (memory or {}).items() if name in self.local_names}
        load_entries(entries, self.completed({**by_name(parameters, self.shared_names), **local}))
        return memory is not None

    def completed(self, entries: Arrays) -> dict[str, NDArray]:
        """Return a whole state dict: these entries, and the initial values of the others.

        The others are constant ones, and local ones that were constant in the client's last round.
        """
        return {**self.task.initial, **entries}

    @np.errstate(over="ignore", invalid="ignore")
    def _has_diverged(self, name: str, entry: torch.Tensor) -> bool:
        """Return whether the part of an entry that differs from the initial model is not finite in norm."""
        values, start = to_array(entry), self.task.initial[name]
        unchanged = (values == start) | (np.isnan(values) & np.isnan(start))
        return not np.isfinite(np.linalg.norm(np.where(unchanged, 0, values)))

    def _by_one_name(self, arrays: Arrays) -> dict[str, NDArray]:
        """Rename arrays of tied parameters to the name in `trained_names`."""
        names = {alias: name for name in self.trained_names for alias in self.aliases[name]}
        return {names.get(name, name): array for name, array in arrays.items()}

    def _by_every_name(self, arrays: Mapping[str, Value]) -> dict[str, Value]:
        """Repeat those of tied parameters under all of their names, as the server expects them."""
        return {alias: array for name, array in arrays.items() for alias in self.aliases.get(name, (name,))}

    def _sent(self, entries: Mapping[str, torch.Tensor], copy: bool = True) -> NamedArrays:
        given = to_array if copy else viewed
        return NamedArrays({name: given(entries[name]) for name in self.shared_names})
