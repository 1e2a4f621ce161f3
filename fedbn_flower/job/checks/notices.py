"""Warn, before the first round, of what is no mistake but hardly meant."""

from collections import Counter
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from fedbn_flower.clients import FedAvgClient, FedBNClient, Loss, Objective
from fedbn_flower.clients.modules.batch_norm import batch_norm_layers, batch_norm_statistics
from fedbn_flower.clients.returned import kept_at_home

from ...config.named_algorithms import NOT_GIVEN
from ...config.run_config import RunConfig
from ...core.ground.settings import overridden
from ...core.text import listed
from ...inspection.copies import of_copies, of_same_clients
from ...inspection.inputs import of_doubts, of_float_pictures, of_site_units
from ...inspection.leaks import of_leaks
from ...inspection.targets import of_labels, of_targets
from ...names import CLIENT, LOSS, OBJECTIVE, STRATEGY, Registry, parts
from ..group_sides import of_groups_on_both, sides_of
from ..inputs import RunInputs
from ..tested_on import who_lacks
from ..what_is_learnt import MAX_SHOWN
from .model_fit import clients_of_one_example
from .outputs import of_outputs
from .own_state import of_own_state
from .recalibration import of_few_cases
from .target_scale import of_target_scale

METHODS = (FunctionType, staticmethod, classmethod, property)


def notices(inputs: RunInputs) -> list[str]:
    """Return the warnings of this run, one line each."""
    found = (
        *_of_clients_data(inputs),
        *of_outputs(inputs),
        *of_target_scale(inputs),
        *_of_the_weights(inputs),
        *_of_the_policy(inputs),
        *_of_written_classes(inputs.config),
        *_of_evaluation(inputs),
        *of_few_cases(inputs),
        *of_own_state(inputs),
    )
    return [line for line in found if line]


def of_the_data(inputs: RunInputs) -> Iterator[str]:
    """Yield the warnings of the data, or of a site's: what is hardly meant to be learnt, or from."""
    config, dataset = inputs.config, inputs.dataset
    if not dataset.has_examples:
        return
    shares = None if inputs.data_path else inputs.partitions.train
    yield from of_leaks(dataset)
    if not config.normalize:
        yield from of_float_pictures(dataset)
    yield from of_doubts(dataset, shares, config.missing_values)
    yield from of_copies(dataset, inputs.partitions.test_rows if shares is not None else None)
    if shares is not None:
        yield from of_groups_on_both(inputs, sides_of(inputs))
        yield from of_labels(dataset, config.predict != "auto" or "=" in config.label_column)
        yield from of_same_clients(dataset)
        yield from of_site_units(dataset, shares, inputs.client_names)
        yield from of_targets(dataset, shares, inferred=config.problem == NOT_GIVEN)


def _of_clients_data(inputs: RunInputs) -> Iterator[str]:
    config, dataset = inputs.config, inputs.dataset
    if not dataset.has_examples:
        return
    yield from of_the_data(inputs)
    yield from _of_units(inputs)
    if inputs.config.partitioning.kind == "natural":
        yield from _of_few_sites(inputs)
    local = inputs.evaluates_locally
    if inputs.prepares_publicly:
        if not config.dp_scale:
            yield (
                "dp-scale: none, so numbers of the table stay as they are; name the mean and deviation of "
                "each column that are known without looking at the rows, COLUMN=MEAN:DEVIATION"
            )
    elif dataset.kind.prepares_by_client and not (local or config.normalize):
        why = "" if config.eval_data == "global" else f", since {who_lacks(inputs)} no held-out examples"
        yield (
            f"eval-data: 'global'{why}: each client's model is evaluated on all clients' examples, "
            "standardised by this client's rows; 'local' evaluates it on this client's examples only"
        )
    if single := clients_of_one_example(inputs):
        yield (
            f"partition: {len(single)} of {config.num_clients} clients (the first is {single[0]}) have one "
            f"example only, and {config.model!r} cannot train on one (BatchNorm needs two): they fail in "
            "every round"
        )


def _of_few_sites(inputs: RunInputs) -> Iterator[str]:
    """Yield a warning of natural clients of the data that take no part."""
    groups, names = inputs.dataset.train.groups, inputs.partitions.names
    others = sorted({*(groups.tolist() if groups is not None else ())} - {*names})
    if others:
        every = len(names) + len(others)
        yield (
            f"num-clients: {len(names)} of {every} sites take part; left out: {listed(others, MAX_SHOWN)} "
            f"(without num-clients all {every} do)"
        )


def _of_units(inputs: RunInputs) -> Iterator[str]:
    units, train = inputs.protected_units, inputs.partitions.train
    if units is None:
        return
    found = Counter(unit for i in range(len(train.sizes)) for unit in {*units[train[i]].tolist()})
    if several := sum(count > 1 for count in found.values()):
        yield (
            f"dp-unit: {several} of {len(found)} values of {inputs.config.dp_unit!r} have rows at several "
            "clients: each client protects its own rows of them, and their epsilons add up"
        )


def _of_the_weights(inputs: RunInputs) -> Iterator[str]:
    weights = inputs.initial().weights
    if weights and not weights.complete:
        yield str(weights)


def _of_the_policy(inputs: RunInputs) -> Iterator[str]:
    config, initial = inputs.config, inputs.initial()
    for name in parts(config.client):
        client = CLIENT.find(name)
        local = kept_at_home(client, initial.module)
        of_batch_norm = client.decides == FedBNClient.decides and not batch_norm_layers(initial.module)
        keeps = overridden(client, FedAvgClient, ["local_entries"])
        if not (keeps or of_batch_norm) or local - initial.constant:
            continue
        as_shared = ": it is 'shared' here" if name == config.client else ""
        frozen = ", since all of that is frozen" if local else ""
        advice = ""
        if local & batch_norm_statistics(initial.module):
            advice = "; with frozen-bn 'adapt' BatchNorm statistics stay and adapt"
        norm = "" if config.norm in ("keep", client.norm) else f" with norm {config.norm!r}"
        does = "keeps nothing at home of" if keeps else "finds no BatchNorm in"
        yield f"client: {name!r} {does} {config.model!r}{norm}{frozen}{as_shared}{advice}"


def _of_written_classes(config: RunConfig) -> Iterator[str]:
    """Classes of the user with methods, none of which is one of their base: mostly a name is misspelt."""
    chosen: list[tuple[Registry[Any], type, str]] = [
        *((CLIENT, FedAvgClient, name) for name in parts(config.client)),
        (OBJECTIVE, Objective, config.objective),
        (LOSS, Loss, config.loss),
    ]
    for registry, base, name in chosen:
        methods = {word for word, value in vars(base).items() if isinstance(value, METHODS)}
        below = [cls for cls in registry.find(name).__mro__ if issubclass(cls, base) and cls is not base]
        written = {
            word
            for cls in below
            for word, value in vars(cls).items()
            if isinstance(value, METHODS) and (word in methods or not word.startswith("__"))
        }
        if name not in registry.names and written and not written & methods:
            yield f"{registry.key}: {name!r} overrides no method of {base.__name__}: is a name misspelt?"


def _of_evaluation(inputs: RunInputs) -> Iterator[str]:
    if not inputs.config.clients_evaluate and not inputs.server_evaluates:
        lacks = f"what client {inputs.config.client!r} keeps at home" if inputs.local_names else "data"
        lacks = "one model of all clients" if STRATEGY.find(inputs.config.strategy).keeps_models else lacks
        asked = "fraction-evaluate: 0.0 asks no client"
        if not inputs.config.clients_report:
            without = "" if inputs.config.dp == "client" else " without dp-metrics"
            asked = f"dp: with {inputs.config.dp!r} clients send no metrics{without}"
        yield f"{asked}, and the server lacks {lacks}: nothing is evaluated"
