"""The round whose model and figures a run's folder has: the last one or, with patience, the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedbn_flower.strategies.messages.npy import viewed

from ..core.files import Row, csv_text, json_text
from ..job.cases import file_of_cases, file_of_overlays
from ..job.inputs import inputs_of
from ..records.array_file import array_file
from ..records.cases import OVERLAYS_FILE, PREDICTIONS_FILE
from ..records.checkpoint import Checkpoint
from ..records.events import RoundResult
from ..records.metrics import STATES_FILE, states_file
from ..records.summary import SUMMARY_FILE, RoundFigures, Summary
from ..server.federation import Federation
from .classes import HEADER, class_rows
from .summary import round_figures

MODEL_FILE = "model.safetensors"
MODELS = "models"
"""The folder of several models, a file each; and of `OF_CLIENTS`, which says whose model is which."""
OF_CLIENTS = "clients.json"


@dataclass(frozen=True)
class KeptRound:
    """What is written of one round.

    Parameters
    ----------
    entries : Mapping[str, NDArray]
        The model, with its frozen entries.
    figures : RoundFigures
        The model's part of the summary.
    classes : Sequence[Row]
        The rows of ``classes.csv``.
    states : bytes
        The content of ``states.safetensors``.
    predictions : bytes
        The content of ``predictions.parquet``.
    overlays : bytes
        The content of ``overlays.safetensors``.

    models : Mapping[str, Mapping[str, NDArray]]
        The models of a strategy that keeps several, with their frozen entries.
    assigned : Mapping[int, str]
        Which of them a client has, by partition.

    The four before the last two are empty if their files are to stay as they are.
    """

    entries: Mapping[str, NDArray]
    figures: RoundFigures
    classes: Sequence[Row] = ()
    states: bytes = b""
    predictions: bytes = b""
    overlays: bytes = b""
    models: Mapping[str, Mapping[str, NDArray]] = field(default_factory=dict)
    assigned: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of_checkpoint(cls, best: Checkpoint, federation: Federation) -> "KeptRound":
        """Return the best round of a run that is resumed; its further files are in the folder."""
        entries = known_of_model(best.server_round, best.model, federation)
        models = completed_models(best.server_round, best.arrays, best.models, federation)
        figures = RoundFigures.model_validate(best.counters["figures"])
        return cls(entries, figures, models=models, assigned=best.assigned)

    def content(self, summary: Summary) -> dict[str, str | bytes]:
        """Return the content of the files by name, in the order in which they are written."""
        return {
            **{name: array_file(name, entries) for name, entries in self._models.items()},
            **({f"{MODELS}/{OF_CLIENTS}": self._of_clients} if self.models else {}),
            **({"classes.csv": csv_text(HEADER, self.classes)} if self.classes else {}),
            **({STATES_FILE: self.states} if self.states else {}),
            **({PREDICTIONS_FILE: self.predictions} if self.predictions else {}),
            **({OVERLAYS_FILE: self.overlays} if self.overlays else {}),
            SUMMARY_FILE: json_text(summary.as_json(), indent=2) + "\n",
        }

    @property
    def _models(self) -> dict[str, Mapping[str, NDArray]]:
        """The models by the names of their files."""
        return {
            MODEL_FILE: self.entries,
            **{f"{MODELS}/{name}.safetensors": entries for name, entries in self.models.items()},
        }

    @property
    def _of_clients(self) -> str:
        """Whose model is which, as JSON."""
        return json_text(dict(sorted(self.assigned.items())), indent=2) + "\n"


class KeptRounds:
    """Keeps the last round or, with patience, the best one.

    Parameters
    ----------
    federation : Federation
        The run.
    train_examples : Mapping[str, int]
        The clients' numbers of training examples by partition as text, as far as they are known.
    best : Checkpoint, optional
        That of the best round of a run that is resumed with patience.
    """

    def __init__(
        self, federation: Federation, train_examples: Mapping[str, int], best: Checkpoint | None
    ) -> None:
        self.federation = federation
        self.train_examples = dict(train_examples)
        self.kept = KeptRound.of_checkpoint(best, federation) if best else None
        self._evaluated = self.kept
        """The last one of them that was evaluated, and found finite."""

    def take(self, result: RoundResult) -> None:
        """Keep the round if it is to be kept; of a run that diverged the last one that was evaluated."""
        self.train_examples |= result.train_examples
        if result.diverged:
            self.kept = self._evaluated
        elif result.kept:
            self.kept = kept_round(result, self.federation, self.train_examples)
            self._evaluated = self.kept if result.splits else self._evaluated


def kept_round(result: RoundResult, federation: Federation, train_examples: Mapping[str, int]) -> KeptRound:
    """Return what is kept of a round."""
    inputs, dataset = federation.inputs, federation.dataset
    shared = dataset.has_examples and not inputs.evaluates_locally
    return KeptRound(
        known_of_model(result.server_round, result.arrays, federation),
        round_figures(
            result, dataset, train_examples, inputs.client_names, shared, inputs.config.recalibrate
        ),
        class_rows(result, dataset),
        states_file(result, dataset.problem),
        file_of_cases(result, inputs),
        file_of_overlays(result, inputs),
        completed_models(result.server_round, result.arrays, result.state.models, federation),
        result.state.assigned,
    )


def known_of_model(server_round: int, arrays: ArrayRecord, federation: Federation) -> dict[str, NDArray]:
    """Return the model after a round without what stays at home: what travelled, and what is frozen.

    It is not copied.
    """
    constant = inputs_of(federation.config.at_round(server_round)).constant
    return {**constant, **{name: viewed(array) for name, array in arrays.items()}}


def completed_models(
    server_round: int, main: ArrayRecord, models: Mapping[str, ArrayRecord], federation: Federation
) -> dict[str, dict[str, NDArray]]:
    """Return several models whole: with what one lacks from the main one, and what is frozen."""
    of_main = dict(main)
    return {
        name: known_of_model(server_round, ArrayRecord({**of_main, **entries}), federation)
        for name, entries in models.items()
    }
