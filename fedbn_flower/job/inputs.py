"""The inputs of a run: its dataset, the rows of every client, the models."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Predicted, Prepare, Problem, trainable_names
from fedbn_flower.clients.modules.frozen import Split, split
from fedbn_flower.clients.modules.lazy_torch import nn
from fedbn_flower.clients.returned import kept_at_home

from ..config.data_request import load_requested, request_of
from ..config.keys import RUN_KEYS
from ..config.metric_names import with_metrics
from ..config.named_algorithms import NOT_GIVEN
from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed
from ..core.files import digest_of, path_of
from ..core.ground.columns import TEST, VALIDATION
from ..core.notes import Note, TestedOn
from ..core.process_cache import process_cache
from ..core.text import listed, visible
from ..data import Dataset, Partitions, partition_dataset
from ..data.column_text import Feature
from ..data.dataset import Kind
from ..data.events import events_of
from ..data.images.moments import Scale
from ..data.images.patches import patch_sizes
from ..data.images.sampling import Sampling
from ..data.partition.partition import Splits
from ..data.scales import SiteMoments, median_scale, public_scale, received
from ..data.sources import KINDS
from ..data.splits.groups import grouped_by
from ..data.splits.subgroups import attributes_of
from ..models import InputSpec
from ..models.named import models_named
from ..names import CLIENT, OBJECTIVE, PROBLEM, STRATEGY, as_user_error
from .initial_model import InitialModel, Start, initial_model
from .normalisation import Normalisation
from .participation import held_out_clients

MAX_SHOWN = 20


@dataclass(frozen=True, eq=False)
class RunInputs:
    """The inputs of one run in one process, each computed on first use and cached.

    Parameters
    ----------
    config : RunConfig
        The run's.
    data_path : str
        A SuperNode's data folder, in place of the run's dataset.
    cache_dir : str
        Where that SuperNode keeps decoded data, in place of the run's ``cache-dir``.
    scale : Scale, optional
        Mean and deviation of the examples of all SuperNodes, by which each standardises.
    """

    config: RunConfig
    data_path: str = ""
    cache_dir: str = ""
    scale: Scale | None = None

    @cached_property
    def dataset(self) -> Dataset:
        """The run's dataset, or the node's, with the run's problem and metrics.

        Raises
        ------
        UserError
            As `_dataset_as_it_is`; for a problem that does not fit the data, or a metric that does not fit.
        """
        config, dataset = self.config, self._dataset_as_it_is
        problem = self._problem(dataset).with_windows(patch_sizes(config.patch_size, dataset.spec))
        tolerance = None if config.surface_tolerance == "auto" else float(config.surface_tolerance)
        axes = len(dataset.spec.shape) - 1
        problem = problem.with_distances(Sampling(spacing=config.spacing).millimetres(axes), tolerance)
        predicted = Predicted(problem.predicts, dataset.spec.outputs, config.thresholds, problem.background)
        events = events_of(dataset, problem, config.event, not self.data_path and config.dp == "none")
        dataset = replace(dataset, events=events)
        problem = problem.with_events(tuple(event.number for event in events))
        by = dataset.outcomes[int(problem.background) :] if config.metrics_by_class else []
        notes = (*dataset.notes, *dataset.kind.notes(bool(config.normalize)))
        return replace(dataset, problem=with_metrics(problem, config.metrics, predicted, by), notes=notes)

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the data and their use in this run."""
        found = list(self.dataset.notes)
        if self.initial().spec.integers and self.dataset.spec.predicts != "characters":
            model = models_named(self.config.model)[0]
            found.append(Note("inputs", f"whole numbers, int64, as model {model!r} takes them"))
        if not self.data_path and (self.config.clients_evaluate or self.config.holdout_clients):
            found.append(self.tested_on.note)
        if self.untested and (self.config.clients_evaluate or self.config.holdout_clients):
            named = self.client_names or range(self.config.num_clients)
            clients = listed([f"{named[client]}" for client in sorted(self.untested)], MAX_SHOWN)
            text = f"clients that train and are not evaluated, without held-out examples: {clients}"
            found.append(Note("examples", text))
        return tuple(found)

    @cached_property
    def model_spec(self) -> InputSpec:
        """The specification of the models: the dataset's, with the problem's number of outputs."""
        spec, problem = self.dataset.spec, self.dataset.problem
        sizes = problem.windows or spec.shape[1:]
        return replace(spec, shape=(spec.shape[0], *sizes), outputs=problem.outputs_for(spec.outputs))

    def _problem(self, dataset: Dataset) -> Problem:
        """The problem named by the run, by default that of the data."""
        name, data = self.config.problem, self.data_path or self.config.dataset
        if name == NOT_GIVEN or type(dataset.problem) is (cls := PROBLEM.find(name)):
            return dataset.problem
        with as_user_error(PROBLEM.key, name):
            if wanted := cls.misfit_of_targets(dataset.spec.predicts, dataset.train.columns["y"]):
                raise not_allowed(PROBLEM.key, name, f"one that {data!r} is for: it needs {wanted}")
            return cls()

    @cached_property
    def _dataset_as_it_is(self) -> Dataset:
        """The run's dataset, or the node's; one of ``shape:...`` has no examples.

        Raises
        ------
        UserError
            When it cannot be read, or a node's data do not have the form that the run expects.
        """
        config, data_path = self.config, self.data_path
        shape = InputSpec.parse(config.dataset)
        if shape and not data_path:
            return Dataset.without_examples(shape)
        request = request_of(config, data_path)
        name, dataset = request.name, load_requested(request, self.cache_dir or config.cache_dir)
        _check_keys(config, dataset)
        if request.unit_column and dataset.train.units is None:
            wanted = "none: the data are no table, nor pictures that a table names"
            if request.keeps_groups and not request.unit_pattern and path_of(name).is_dir():
                wanted = (
                    "name=PATTERN, which finds the group in a picture's path: no table names the pictures"
                )
            raise not_allowed(request.unit_key, request.unit_column, wanted)
        lacks = [one for one in attributes_of(request.subgroups) if str(one) not in dataset.train.subgroups]
        if lacks and not data_path:
            wanted = "none: the data are no table, nor pictures that a table names"
            raise not_allowed("subgroups", request.subgroups, wanted)
        if not shape:
            if data_path:
                return dataset
            if config.normalize == "median":
                dataset = replace(dataset, kind=dataset.kind.scaled_by(self._median_scale(dataset)))
            if (config.folds or config.holdout_clients) and config.normalize is True:
                dataset = self._scaled_by_those_that_train(dataset)
            if not config.holdout_clients:
                return dataset
            rows = self._rows_that_train(self._divided(dataset))
            return replace(dataset, problem=dataset.kind.problem(rows))
        found = dataset.of_site(shape, data_path)
        return replace(found, kind=found.kind.scaled_by(self.scale)) if self.scale else found

    def _median_scale(self, dataset: Dataset) -> Scale:
        """The median of the training clients' scales, from the moments that each would report as a site.

        Raises
        ------
        UserError
            For data without moments.
        """
        shares, kind = self._divided(dataset), dataset.kind
        found: list[SiteMoments] = []
        for client in sorted(set(range(self.config.num_clients)) - self.held_out_clients):
            rows = np.sort(np.concatenate([shares.train[client], shares.val[client]]))
            if not (arrays := kind.of_rows(rows).moments()):
                raise not_allowed("normalize", "median", "true or false with data of this kind")
            found.append(received(arrays, dataset.spec.shape[0], math.inf))
        return median_scale(found)

    def _scaled_by_those_that_train(self, dataset: Dataset) -> Dataset:
        """The dataset without its scale of all rows: a fold's test examples, and clients that do not train,
        have no part in it.
        """
        kind, shares = dataset.kind, self._divided(dataset)
        others = [part[client] for client in self.held_out_clients for part in (shares.train, shares.val)]
        others += [shares.test_rows] if self.config.folds else []
        rows = np.delete(np.arange(len(dataset.train)), np.concatenate(others))
        if not (arrays := kind.of_rows(rows).moments()):
            return dataset
        scale = received(arrays, dataset.spec.shape[0], math.inf).scale()
        return replace(dataset, kind=kind.scaled_by(scale))

    @cached_property
    def held_out_clients(self) -> frozenset[int]:
        """The partitions that take no part in the rounds."""
        config = self.config
        count, named = config.holdout_clients, config.left_out
        return held_out_clients(config.seed, config.num_clients, count, named)

    @cached_property
    def partitions(self) -> Partitions:
        """The rows of every client; with ``reference pooled`` each client that is not held out has all."""
        shares = self._divided(self.dataset)
        if self.config.reference != "pooled":
            return shares
        pooled = self._rows_that_train(shares)
        return replace(shares, train=shares.train.with_all_but(self.held_out_clients, pooled))

    @property
    def protected_units(self) -> NDArray[np.int64] | None:
        """The privacy unit of each training row, if all rows of a unit are protected together."""
        return self.dataset.train.units if self.config.dp_unit else None

    @cached_property
    def protected(self) -> NDArray[np.int64]:
        """The number of training examples of each client, or of privacy units if there are any."""
        train, units = self.partitions.train, self.protected_units
        if units is None:
            return train.sizes
        return np.array([len(np.unique(units[train[i]])) for i in range(len(train.sizes))], np.int64)

    def _divided(self, dataset: Dataset) -> Partitions:
        config, splits = self.config, self.splits(dataset.train.units)
        return partition_dataset(
            dataset, config.partition, config.num_clients, config.seed, config.val_fraction, splits
        )

    def splits(self, units: NDArray | None) -> Splits:
        """Return how examples of these units are split, beyond ``partition`` and ``val-fraction``.

        If single examples are protected, the split must not depend on the outcomes of other examples.
        """
        config = self.config
        grouped = bool(grouped_by(config.group_column, config.dp_unit, units))
        return Splits(grouped, grouped and config.dp != "example", config.folds, config.fold)

    def _rows_that_train(self, partitions: Partitions) -> NDArray[np.int64]:
        """The training rows of all clients that are not held out, in order."""
        return partitions.train.union(self.held_out_clients)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of training, validation and test examples."""
        validation, test = len(self.partitions.val_rows), len(self.partitions.test_rows)
        others = validation + (test if self.config.folds else 0)
        return len(self.dataset.train) - others, validation, test

    @cached_property
    def client_names(self) -> tuple[str, ...]:
        """The name of each client, if the data have names."""
        return tuple(map(visible, self.partitions.names)) if self.dataset.has_examples else ()

    @cached_property
    def tested_on(self) -> TestedOn:
        """Whose held-out examples clients are evaluated on, and why.

        ``auto`` is local if clients are sites, or if models are personal, and so not meant for other clients'
        examples. Clients without held-out examples are then not evaluated.
        """
        if not self.dataset.has_examples or self.data_path:
            return TestedOn(True)
        if self.config.eval_data != "auto":
            return TestedOn(self.config.eval_data == "local")
        why = self._why_locally()
        if not why:
            return TestedOn(False, "all have one model, and the data name no sites")
        if self.must_have_held_out:
            return TestedOn(False, f"{self.who_lacks} none of their own")
        return TestedOn(True, why)

    def _why_locally(self) -> str:
        """Why a client's model is not meant for other clients' examples; empty if it is."""
        config = self.config
        if config.partitioning.kind == "natural":
            return "clients are sites"  # decided without building a model
        standardised = config.normalize or self.prepares_publicly
        client, strategy = CLIENT.find(config.client), STRATEGY.find(config.strategy)
        reasons = {
            f"client {config.client!r} keeps a part of the model at home": self.local_names
            or client.remembers,
            f"strategy {config.strategy!r} keeps several models": strategy.keeps_models,
            "each first trains or adapts the model": config.fine_tune or config.adapt_bn,
            "each evaluates the model that it has trained": config.eval_model == "local",
            "each standardises by its own rows": self.dataset.kind.prepares_by_client and not standardised,
        }
        return next((why for why, holds in reasons.items() if holds), "")

    @property
    def must_have_held_out(self) -> bool:
        """Whether the run needs local held-out examples from clients that have none.

        So it is if no client has any, the site that is left out has none, or each client evaluates the model
        that it has just trained.
        """
        lacking = frozenset().union(*self.without_held_out.values())
        after_training = self.config.eval_model == "local"
        every = len(lacking) == self.config.num_clients
        return bool(lacking) and (after_training or every or bool(lacking & self.held_out_clients))

    @property
    def who_lacks(self) -> str:
        """The clients without examples in a held-out split, as the beginning of a sentence."""
        clients = min(self.without_held_out.values(), key=min)
        first = self.client_names[clients[0]] if self.client_names else clients[0]
        return f"{len(clients)} of {self.config.num_clients} clients (the first is {first}) have"

    @property
    def evaluates_locally(self) -> bool:
        """Whether a client is evaluated on its share of the held-out examples."""
        return self.tested_on.locally

    @property
    def untested(self) -> frozenset[int]:
        """The clients of a simulation that are not evaluated, for lack of held-out examples."""
        if self.data_path or not (self.dataset.has_examples and self.evaluates_locally):
            return frozenset()
        return frozenset().union(*self.without_held_out.values())

    @cached_property
    def without_held_out(self) -> dict[str, list[int]]:
        """The clients without examples in a held-out split, by split; only splits with such clients."""
        shares = {VALIDATION: self.partitions.val, TEST: self.partitions.test}
        splits = self.config.held_out_splits(final=True).split(",")
        found = {split: np.flatnonzero(shares[split].sizes == 0).tolist() for split in splits}
        return {split: clients for split, clients in found.items() if clients}

    def initial(self, partition_id: int = 0, precision: str = "") -> InitialModel:
        """A client's initial model, in the run's precision or another; clients share its module."""
        config = self.config
        name = (names := models_named(config.model))[partition_id % len(names)]
        settings = config.softmax_output, config.seed, config.device, precision or config.precision
        of_run = Start.of(config), Normalisation.of(config)
        return initial_model(name, self.model_spec, *settings, *of_run)

    def model(self, partition_id: int = 0, precision: str = "") -> tuple[nn.Module, dict[str, NDArray]]:
        """A client's module, which clients with the same model share, and the initial state dict."""
        initial = self.initial(partition_id, precision)
        return initial.module, initial.entries

    @cached_property
    def split(self) -> Split:
        """Which entries of the model are shared, local, or constant.

        Raises
        ------
        UserError
            When the client's class raises, or names what the model does not have.
        """
        name = self.config.client
        initial = self.initial()
        with as_user_error("client", name):
            local = kept_at_home(CLIENT.find(name), initial.module)
        if unknown := local - initial.entries.keys():
            missing = ", ".join(sorted(unknown))
            raise UserError(f"client: {name!r} keeps at home what the model does not have: {missing}")
        return split(initial.entries, local, initial.constant)

    @cached_property
    def rounded_names(self) -> frozenset[str]:
        """The entries that are sent to clients in bfloat16, and kept in float32 by the server.

        With ``compress-down`` these are all, otherwise those in bfloat16 in the model itself. Privacy
        mechanisms and asynchronous protocols handle one version of the model only; then clients round it
        themselves.
        """
        if self.config.rounds_model:
            return frozenset(self.split.shared)
        if self.config.dp != "none" or self.config.asynchronous:
            return frozenset()
        return self.initial().halves & set(self.split.shared)

    @property
    def local_names(self) -> frozenset[str]:
        """The local entries of the model."""
        return frozenset(self.split.local)

    @property
    def stepped_names(self) -> list[str]:
        """The entries that the server's rule steps: shared and trainable ones."""
        model, _ = self.model()
        return [name for name in trainable_names(model) if name not in self.local_names]

    @property
    def constant(self) -> dict[str, NDArray]:
        """The entries of the model that never change; none if clients have different models."""
        if len(models_named(self.config.model)) > 1:
            return {}
        return {name: self.initial().entries[name] for name in self.split.constant}

    @cached_property
    def digest_of_start(self) -> str:
        """A digest of the entries that clients have without being sent them; empty if there are none.

        These are the constant entries and, with ``init``, the initial values of local ones.
        """
        names = [*self.split.constant, *(self.split.local if self.config.init else ())]
        return digest_of({name: self.initial().entries[name] for name in names}) if names else ""

    @property
    def server_evaluates(self) -> bool:
        """Whether the server can evaluate one model: not if BatchNorm is local, or sites hold all data."""
        many = self.local_names or STRATEGY.find(self.config.strategy).keeps_models
        return not many and self.dataset.has_examples

    @cached_property
    def remembers(self) -> bool:
        """Whether clients have a memory between rounds."""
        if (last := self.config.at_round(self.config.rounds)) != self.config:
            return inputs_of(last, self.data_path, self.cache_dir).remembers
        of_run = (OBJECTIVE.find(self.config.objective), CLIENT.find(self.config.client))
        return self.config.keeps_residual or bool(self.local_names) or any(c.remembers for c in of_run)

    def prepare(self, rows: NDArray[np.int64], partition_id: int = 0) -> Prepare:
        """Return the function that turns a client's batch into model inputs, given its training rows.

        If single examples are protected it depends on no rows: numbers of tables have a public scale.

        Raises
        ------
        UserError
            When the model takes integers, and the data are not integers.
        """
        kind = self.dataset.kind
        if not self.initial(partition_id).spec.integers:
            if self.prepares_publicly:
                return self._public_kind.prepare(rows, True)
            return kind.prepare(rows, bool(self.config.normalize))
        if self.config.normalize:
            wanted = f"false: model {self.config.model!r} takes whole numbers"
            raise not_allowed("normalize", self.config.normalize, wanted)
        if self._why_not_integers:
            wanted = f"another one: it takes whole numbers, and {self._why_not_integers}"
            raise not_allowed("model", self.config.model, wanted)
        return kind.prepare_integers(rows)

    @cached_property
    def _why_not_integers(self) -> str:
        dataset = self.dataset
        return dataset.kind.not_integers(dataset.train.columns, dataset.test.columns)

    @cached_property
    def servers_prepare(self) -> Prepare:
        """What prepares the server's examples, by statistics of the training rows."""
        return self.prepare(self._rows_that_train(self.partitions))

    @property
    def prepares_publicly(self) -> bool:
        """Whether inputs are scaled by the public ``dp-scale`` instead of the clients' own statistics."""
        return self.config.dp == "example" and self.dataset.kind.prepares_by_client

    @cached_property
    def _public_kind(self) -> Kind:
        kind = self.dataset.kind
        columns = [Feature(one["name"], tuple(one["values"])) for one in kind.facts["columns"]]
        return kind.scaled_by(public_scale(self.config.dp_scale, columns))


@process_cache(maxsize=4)
def inputs_of(
    config: RunConfig, data_path: str = "", cache_dir: str = "", scale: Scale | None = None
) -> RunInputs:
    """The inputs of a run, one object per process."""
    return RunInputs(config, data_path, cache_dir, scale)


def _check_keys(config: RunConfig, dataset: Dataset) -> None:
    """Refuse keys that apply to another kind of data."""
    for key in sorted({key for kind in KINDS.values() for key in kind.keys} - dataset.kind.keys):
        value, default = getattr(config, key.replace("-", "_")), RUN_KEYS[key].default
        if value != default:
            kinds = " or ".join(repr(name) for name, kind in KINDS.items() if key in kind.keys)
            raise not_allowed(key, value, f"{default!r}, since the data are not of the kind {kinds}")
