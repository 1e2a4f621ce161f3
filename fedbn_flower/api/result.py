"""Read a run's folder as Python objects: tables, models, figures."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedbn_flower.clients import FedAvgClient, load_entries
from fedbn_flower.clients.modules.arrays import to_array
from fedbn_flower.clients.modules.lazy_torch import nn

from ..annexes import load
from ..config.trust import check_code
from ..core.errors import UserError, not_allowed
from ..core.free_memory import regular
from ..core.session_objects import is_session_name, new_name, with_session_objects
from ..core.stored import CONFIG, DAMAGES, RUN, checked_kind, damage_as_user_errors, json_object
from ..core.text import hint
from ..job.initial_model import build_model
from ..job.normalisation import Normalisation
from ..models import InputSpec
from ..models.named import models_named
from ..names import CLIENT
from ..records.cases import PREDICTIONS_FILE, written_predictions
from ..records.summary import SUMMARY_FILE, Summary
from ..results.checkpoints.checkpoint_folder import BEST, LAST, CheckpointFolder
from ..results.kept_round import MODEL_FILE, MODELS, OF_CLIENTS
from ..results.manifest import read_manifest
from ..results.run_reader import Run, large_table

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..results.plotting.svg_figure import InlineFigure


MAX_NAMES = 10
"""Clients' names in a message."""


class Result:
    """The results in a run's folder, also of a run made by ``run_sim.py`` or ``flwr run``.

    Parameters
    ----------
    folder : str or Path
        The run's folder.
    model : callable, optional
        The model function, if the run was given one.
    trust_code : bool
        Whether `model` may run code (``FILE.py:NAME``) that the folder names; see `load_model`.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        model: Callable[..., nn.Module] | str | None = None,
        *,
        trust_code: bool = False,
    ) -> None:
        self.folder = Path(folder)
        checked_kind(self.folder, "run-dir", RUN)
        self._model = model
        self._trust_code = trust_code

    @cached_property
    def history(self) -> DataFrame:
        """One row per round: ``metrics.csv``."""
        return self._table("metrics.csv")

    @cached_property
    def clients(self) -> DataFrame:
        """One row per round, phase and client with the reported metrics: ``clients.csv``.

        It is read from ``clients.parquet`` where there is one.
        """
        with damage_as_user_errors("run-dir", self.folder):
            table = large_table(self.folder)
        return self._table("clients.csv") if table is None else table

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The last round's metrics, or with patience the best round's: ``summary.json``."""
        if (found := Summary.read(self.folder, "run-dir")) is None:
            raise UserError(f"run-dir: {str(self.folder)!r} has no {SUMMARY_FILE} yet")
        return found.as_json()

    @cached_property
    def predictions(self) -> DataFrame:
        """One row per held-out case with what was predicted of it: ``predictions.parquet``.

        Where ``new`` is true, it is of a client that did not train.

        Raises
        ------
        UserError
            When the run has not written it.
        """
        with damage_as_user_errors("run-dir", self.folder):
            table = written_predictions(self.folder)
        if table is None:
            raise UserError(f"predictions: {str(self.folder)!r} has no {PREDICTIONS_FILE}")
        return table

    def model(self, client: int | str | None = None) -> nn.Module:
        """Return the trained model, or a client's; see `load_model`."""
        return load_model(self.folder, client, self._model, trust_code=self._trust_code)

    def export(
        self, path: str | PathLike[str], format: str = "onnx", client: int | str | None = None
    ) -> None:
        """Write the trained model, or a client's, as a file for other programs; see `export_model`."""
        export_model(self.folder, path, format, client, self._model, trust_code=self._trust_code)

    def plot(self) -> InlineFigure:
        """Draw the held-out and training metrics by round; a notebook displays the figure."""
        from ..results.plotting.plots import curves

        with damage_as_user_errors("run-dir", self.folder):
            return curves(Run.read(self.folder))

    def compare(self, other: Result | str | PathLike[str]) -> DataFrame:
        """Compare with another run, as ``fedbn-sim compare`` does: one row per metric, the main one first.

        The columns are ``this``, ``other``, ``difference`` (the other's less this one's), and its 95 %
        interval, ``low`` to ``high``, and ``p``, which are NaN where no test is possible:
        where no predictions are kept, or the runs' held-out cases differ, as with another ``eval_data``.

        Raises
        ------
        UserError
            When the other folder is not a run's, or the runs' metrics cannot be compared.
        """
        folder = other.folder if isinstance(other, Result) else Path(other)
        with damage_as_user_errors("compare", f"{self.folder}, {folder}"):
            found: DataFrame = load("comparisons", "of-two-runs", "compare")(self.folder, folder)
            return found

    def _repr_html_(self) -> str:
        """Return the report's table of held-out metrics and the curves, for a notebook."""
        from ..results.plotting.plots import curves
        from ..results.report.sections.client_tables import metrics_table

        ids = f"run-{sha256(str(self.folder.resolve()).encode()).hexdigest()[:8]}"
        with damage_as_user_errors("run-dir", self.folder):
            run = Run.read(self.folder)
            return metrics_table(run).html() + curves(run).as_svg(ids, tells=False)

    def __repr__(self) -> str:
        return f"Result({str(self.folder)!r}, rounds={self.summary['rounds']})"

    def _table(self, name: str) -> DataFrame:
        from pandas import DataFrame

        with (
            damage_as_user_errors("run-dir", self.folder),
            regular(self.folder / name).open(newline="") as file,
        ):
            return DataFrame([{k: _value(text) for k, text in row.items()} for row in csv.DictReader(file)])


def _value(text: str) -> float | int | str:
    """Parse a CSV cell exactly; by default pandas does not read floats to the last bit."""
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
    """Return a run's model with its weights, on the CPU and in evaluation mode.

    The model takes the same inputs as in the run. Images are float32 (N, channels, height, width) in [0, 1],
    standardised if the run had ``normalize``. Tables are float32 (N, columns), standardised.

    Parameters
    ----------
    run_dir : str or Path
        The run's folder.
    client : int or str, optional
        A client, by number or by its name in the data: the model has the shared entries and those that this
        client keeps, both from the last checkpoint. By default it is the aggregated model of the last round.
        Of a strategy that keeps several models, the client's has the entries of its own, and the default is
        their mean.
        With patience both are of the best round.
    model : callable or str, optional
        The model function, or its ``FILE.py:NAME``, if the run was given one.
    trust_code : bool
        Whether to run code (``FILE.py:NAME``) that the folder names, of the model and of a client.

    Raises
    ------
    UserError
        When the folder is not a run's, it names code that may not be run, there is no such client, or a
        client's local entries are needed and missing.
    """
    folder = Path(run_dir)
    manifest = read_manifest(folder, "run-dir")
    spec = _spec(manifest, folder)
    objects = {new_name(model): model} if callable(model) else {}
    with damage_as_user_errors("run-dir", folder):
        client = None if client is None else _partition(client, manifest)
        if not trust_code:
            named = [("model", manifest["model"])] if model is None else []
            named += [("client", manifest["client"])] if client is not None else []
            named += [("norm", str(manifest.get("norm", "keep")))]
            check_code(named, folder / CONFIG)
        names = models_named(next(iter(objects), str(model or manifest["model"])))
        normalisation = Normalisation.recorded(manifest)
        settings = bool(manifest["softmax-output"]), int(manifest["seed"])
    with with_session_objects(objects):
        module = build_model(names[(client or 0) % len(names)], spec, *settings, normalisation)
    try:
        shared = load_file(regular(model_file(folder, client)))
    except DAMAGES as error:
        raise UserError(f"run-dir: {str(folder)!r} holds no model ({error})") from error
    targets = module.state_dict()
    for name, entry in shared.items():
        if name not in targets or targets[name].shape != entry.shape:
            raise UserError(
                f"model: {manifest['model']!r} does not match the weights in {folder}: entry {name!r} differs"
            )
    entries = _completed(shared, list(targets), folder, manifest, client)
    if len(names) > 1:  # frozen entries of several models are not in the folder: they are as they were made
        entries = {name: to_array(entry) for name, entry in targets.items()} | entries
    load_entries(targets, entries)
    return module.eval()


def export_model(
    run_dir: str | PathLike[str],
    path: str | PathLike[str],
    format: str = "onnx",
    client: int | str | None = None,
    model: Callable[..., nn.Module] | str | None = None,
    *,
    trust_code: bool = False,
) -> None:
    """Write a run's model with its weights as ONNX or TorchScript, for any number of examples.

    The inputs are those of `load_model`'s model, float32 or, of characters and whole numbers, int64, called
    ``inputs``; the outputs, called ``outputs``, are scores before softmax or sigmoid, or numbers.

    Parameters
    ----------
    path : str or Path
        The file: a new one, or one to replace that ends in ``.onnx`` or, of TorchScript, in ``.pt``.
    format : str
        ``onnx``, which needs the extra ``onnx``, or ``torchscript``.
    run_dir, client, model, trust_code
        As in `load_model`.

    Raises
    ------
    UserError
        As `load_model`; for another format, or a model that cannot be written in it.
    """
    module = load_model(run_dir, client, model, trust_code=trust_code)
    write_model = load("model-files", "write", "export")
    write_model(module, _spec(read_manifest(Path(run_dir), "run-dir"), Path(run_dir)), path, format)


def model_file(folder: Path, client: int | None) -> Path:
    """Return the file of the model that a client has of the server; the main one's for None."""
    of_clients = folder / MODELS / OF_CLIENTS
    if client is None or not of_clients.exists():
        return folder / MODEL_FILE
    name = json_object(of_clients).get(str(client))
    return folder / MODELS / f"{name}.safetensors" if name else folder / MODEL_FILE


def _spec(manifest: Mapping[str, Any], folder: Path) -> InputSpec:
    """Return the shape of a run's examples."""
    spec = InputSpec.parse(str(manifest.get("shape", "")))
    if spec is None:
        raise UserError(f"run-dir: {str(folder)!r} does not give the shape of its inputs")
    return spec


def _partition(client: int | str, manifest: Mapping[str, Any]) -> int:
    """Return a client's partition from its number or name."""
    names = manifest.get("client-names") or []
    if isinstance(client, str):
        if names.count(client) == 1:
            return int(names.index(client))
        raise not_allowed("client", client, _clients(manifest), hint(client, names))
    if isinstance(client, bool) or client not in range(manifest["num-clients"]):
        raise not_allowed("client", client, _clients(manifest))
    return int(client)


def _clients(manifest: Mapping[str, Any]) -> str:
    """Return the allowed clients, in words."""
    names = manifest.get("client-names") or []
    more = ", ..." if len(names) > MAX_NAMES else ""
    by_name = f", or a name: {', '.join(map(repr, names[:MAX_NAMES]))}{more}" if names else ""
    return f"0 to {manifest['num-clients'] - 1}{by_name}"


def _completed(
    shared: dict[str, NDArray],
    names: list[str],
    folder: Path,
    manifest: Mapping[str, Any],
    client: int | None,
) -> dict[str, NDArray]:
    """Return a full state dict: the shared and the client's local entries, or its personal model."""
    local = [name for name in names if name not in shared]
    findable = client is not None and not is_session_name(manifest["client"])
    cls = CLIENT.find(manifest["client"]) if findable else FedAvgClient
    if not local and not cls.personal_group:
        return shared
    if client is None:
        reason = f"{len(local)} entries, such as {local[0]}, stay with each client"
        raise not_allowed("client", None, f"{_clients(manifest)}: {reason}")
    best = CheckpointFolder(folder / BEST)
    checkpoint = best if best.server.exists() else CheckpointFolder(folder / LAST)
    last = checkpoint.load()
    if last is None or last.signature is None:
        raise not_allowed(
            "client", client, "None: the run saved no local entries of clients (see checkpoint-every)"
        )
    memory = checkpoint.memory(last, client)
    known = {name: array.numpy() for name, array in last.model_of(client).items()}
    if not memory:
        trained = ", ".join(map(str, checkpoint.partitions(last)))
        raise not_allowed("client", client, f"one that has trained: {trained}")
    local_entries = memory.get(FedAvgClient.LOCAL_GROUP, {})
    entries = shared | known | dict(local_entries)
    return entries | dict(cls.personal(entries, memory[cls.personal_group]) if cls.personal_group else {})
