"""What a run left behind, as objects: tables, models, pictures."""

import csv
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import nn

from fedbn_flower.clients import FedAvgClient, load_entries

from ..config.registry import CLIENT, models_named
from ..config.trust import check_code
from ..core.errors import UserError, not_allowed
from ..core.session_objects import at_hand, is_own, new_name
from ..core.suggestions import hint
from ..federation.initial_model import build_model
from ..models import InputSpec
from ..results.checkpoints.checkpoint_folder import BEST, LAST, CheckpointFolder
from ..results.earlier import entries_of, is_of_0_1, spec_of
from ..results.manifest import CONFIG, stored_facts
from ..results.run_reader import Run

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..results.plotting.svg_figure import InlineFigure


LISTED_NAMES = 10
"""Clients' names in a message."""


class Result:
    """A run's folder; also of a run that ``run_sim.py`` or ``flwr run`` made.

    Parameters
    ----------
    folder : str or Path
        The folder.
    model : callable, optional
        The model function, where the run was given one's own.
    trust_code : bool
        Whether `model` may run code, ``FILE.py:NAME``, that the folder names; see `load_model`.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        model: Callable[..., nn.Module] | str | None = None,
        *,
        trust_code: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self._model = model
        self._trust_code = trust_code

    @cached_property
    def history(self) -> "DataFrame":
        """A row for each round: ``metrics.csv``."""
        return self._table("metrics.csv")

    @cached_property
    def clients(self) -> "DataFrame":
        """A row for each round, phase and client with what it reported: ``clients.csv``."""
        return self._table("clients.csv")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The last round's figures: ``summary.json``."""
        return dict(json.loads((self.folder / "summary.json").read_text()))

    def model(self, client: int | str | None = None) -> nn.Module:
        """The trained model, or the one that a client would use; see `load_model`."""
        return load_model(self.folder, client, self._model, trust_code=self._trust_code)

    def plot(self) -> "InlineFigure":
        """Loss and accuracy by round; a notebook shows it."""
        from ..results.plotting.plots import curves

        return curves(Run.read(self.folder))

    def __repr__(self) -> str:
        return f"Result({str(self.folder)!r}, rounds={self.summary['rounds']})"

    def _table(self, name: str) -> "DataFrame":
        from pandas import DataFrame

        with (self.folder / name).open(newline="") as file:
            return DataFrame([{k: _value(text) for k, text in row.items()} for row in csv.DictReader(file)])


def _value(text: str) -> float | int | str:
    """What a CSV file says, to the last bit, which pandas' own reader does not give by default."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text or "nan")
    return text


def load_model(
    run_dir: str | PathLike[str],
    client: int | str | None = None,
    model: Callable[..., nn.Module] | str | None = None,
    *,
    trust_code: bool = False,
) -> nn.Module:
    """A run's model with its weights, on the CPU and in evaluation mode.

    It takes what the run's clients gave it: of images float32 (N, channels, height, width) in [0, 1],
    standardised where the run had ``normalize``; of tables float32 (N, columns), standardised.

    Parameters
    ----------
    run_dir : str or Path
        The folder that a run left.
    client : int or str, optional
        Whose, by its number or the name that its data give it: the shared entries together with those that
        this client keeps, both as they are in the last checkpoint. By default the aggregated model of the
        last round. With patience both are of the best.
    model : callable or str, optional
        The model function, or its ``FILE.py:NAME``, where the run was given one's own.
    trust_code : bool
        Whether code, ``FILE.py:NAME``, that the folder names may be run: of the model, and of a client.

    Raises
    ------
    UserError
        When it is no such folder, it names code that is not to be run, there is no such client, or a client's
        own entries are needed and not there.
    """
    folder = Path(run_dir)
    facts = stored_facts(folder, "run-dir")
    spec = spec_of(facts) if is_of_0_1(facts) else InputSpec.parse(str(facts.get("shape", "")))
    if spec is None:
        raise UserError(f"run-dir: {str(folder)!r} does not tell the shape of its inputs")
    client = None if client is None else _partition(client, facts)
    if not trust_code:
        named = [("model", facts["model"])] if model is None else []
        named += [("client", facts["client"])] if client is not None else []
        check_code(named, folder / CONFIG)
    own = {new_name(model): model} if callable(model) else {}
    names = models_named(next(iter(own), str(model or facts["model"])))
    with at_hand(own):
        name = names[(client or 0) % len(names)]
        module = build_model(name, spec, bool(facts["softmax-output"]), int(facts["seed"]))
    try:
        shared = load_file(folder / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise UserError(f"run-dir: {str(folder)!r} holds no model ({error})") from error
    targets = module.state_dict()
    for name, entry in shared.items():
        if name not in targets or targets[name].shape != entry.shape:
            raise UserError(f"model: {facts['model']!r} here does not fit the weights in {folder}: {name}")
    load_entries(targets, _completed(shared, list(targets), folder, facts, client))
    return module.eval()


def _partition(client: int | str, facts: Mapping[str, Any]) -> int:
    """The number of a client by itself or by its name."""
    names = facts.get("client-names") or []
    if isinstance(client, str):
        if names.count(client) == 1:
            return int(names.index(client))
        raise UserError(f"client: {client!r} is not allowed{hint(client, names)}; expected {_clients(facts)}")
    if client not in range(facts["num-clients"]):
        raise not_allowed("client", client, _clients(facts))
    return int(client)


def _clients(facts: Mapping[str, Any]) -> str:
    """What a client may be given as."""
    names = facts.get("client-names") or []
    more = ", ..." if len(names) > LISTED_NAMES else ""
    by_name = f", or a name: {', '.join(map(repr, names[:LISTED_NAMES]))}{more}" if names else ""
    return f"0 to {facts['num-clients'] - 1}{by_name}"


def _completed(
    shared: dict[str, NDArray],
    names: list[str],
    folder: Path,
    facts: Mapping[str, Any],
    client: int | None,
) -> dict[str, NDArray]:
    """The whole state dict: the shared entries, and those that the client keeps; or a model of its own."""
    at_home = [name for name in names if name not in shared]
    findable = client is not None and not is_own(facts["client"])
    personal = CLIENT.find(facts["client"]).personal_group if findable else ""
    if not at_home and not personal:
        return shared
    if client is None:
        many = f"{len(at_home)} entries, such as {at_home[0]}, stay with each client"
        raise not_allowed("client", None, f"{_clients(facts)}: {many}")
    if is_of_0_1(facts):
        return entries_of(folder, client)
    best = CheckpointFolder(folder / BEST)
    checkpoint = best if best.server.exists() else CheckpointFolder(folder / LAST)
    last = checkpoint.load()
    if last is None or last.signature is None:
        raise not_allowed("client", client, "None: the run saved no client's own entries (checkpoint-every)")
    memory = checkpoint.memory(last, client)
    if not memory:
        trained = ", ".join(map(str, checkpoint.partitions(last)))
        raise not_allowed("client", client, f"one that has trained: {trained}")
    if personal:
        return dict(memory[personal])
    own = memory.get(FedAvgClient.LOCAL_GROUP, {})
    return {name: array.numpy() for name, array in last.arrays.items()} | dict(own)
