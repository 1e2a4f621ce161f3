"""What a run says before its first round: not mistakes, but not what one would expect."""

from collections.abc import Iterator

from torch import nn

from fedbn_flower.clients import FedAvgClient

from ...config.client_unions import parts
from ...config.registry import CLIENT
from ...config.run_config import RunConfig
from ...data.targets import of_targets
from ..inputs import client_names, dataset_of, evaluates_locally, partitions_of, without_held_out
from ..totals import clients_evaluate
from .model_fit import clients_of_one_example
from .outputs import of_outputs


def notices(config: RunConfig, model: nn.Module, server_evaluates: bool) -> list[str]:
    """Return one line for each surprise of this run."""
    found = (
        *dataset_of(config).notes,
        *_of_clients_data(config),
        *of_outputs(config, dataset_of(config).spec),
        *_of_the_policy(config, model),
        *_of_evaluation(config, model, server_evaluates),
    )
    return [line for line in found if line]


def _of_clients_data(config: RunConfig) -> Iterator[str]:
    dataset = dataset_of(config)
    if not dataset.has_examples:
        return
    yield from of_targets(dataset, partitions_of(config).train)
    local = evaluates_locally(config)
    yield partitions_of(config).left_out(config.partition, local)
    if dataset.kind.prepares_by_client and not local:
        why = "" if config.eval_data == "global" else f", since {_who_lacks(config)} no held-out examples"
        yield (
            f"eval-data: 'global'{why}: each client's model is evaluated on all clients' examples, "
            "standardised by this client's own; 'local' evaluates it on the client's own"
        )
    if lone := clients_of_one_example(config):
        yield (
            f"partition: {len(lone)} of {config.num_clients} clients (the first is {lone[0]}) have one "
            f"example only, and {config.model!r} cannot train on one (BatchNorm needs two): they fail in "
            "every round"
        )


def _who_lacks(config: RunConfig) -> str:
    clients = min(without_held_out(config).values(), key=min)
    first = client_names(config)[clients[0]] if client_names(config) else clients[0]
    return f"{len(clients)} of {config.num_clients} clients (the first is {first}) have"


def _of_the_policy(config: RunConfig, model: nn.Module) -> Iterator[str]:
    for name in parts(config.client):
        client = CLIENT.find(name)
        if client.local_entries is not FedAvgClient.local_entries and not client.local_entries(model):
            as_fedavg = ": it is FedAvg here" if name == config.client else ""
            yield f"client: {name!r} keeps nothing at home of {config.model!r}{as_fedavg}"


def _of_evaluation(config: RunConfig, model: nn.Module, server_evaluates: bool) -> Iterator[str]:
    if not clients_evaluate(config) and not server_evaluates:
        at_home = CLIENT.find(config.client).local_entries(model)
        lacks = f"what client {config.client!r} keeps at home" if at_home else "data"
        yield f"fraction-evaluate: 0.0 asks no client, and the server lacks {lacks}: nothing is evaluated"
