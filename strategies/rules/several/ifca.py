"""IFCA: Ghosh et al. 2020, "An Efficient Framework for Clustered Federated Learning" (arXiv 2006.04088)."""

from collections.abc import Iterable
from typing import ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import CANDIDATE, CHOSEN, MODEL

from ...aggregation.fold import Extras, Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector
from ...messages.gate import ReplyRefused, refusing, text_of
from ...messages.npy import encoded
from ...messages.replies import PhaseReport
from ...messages.validation import Answer
from ...several_models import Clusters

LONGEST_NAME = 100


class IFCA(Clusters):
    """``x_k += eta sum_i p_i (x_i - x_k)`` over the clients that chose model k.

    Clients get all k models, and each trains the one with the least mean loss on its own training examples.
    It evaluates the one with the least then. The k models begin with the weights of different seeds; the
    first has those of the run. A model that nobody chose stays as it is.

    Answers weigh as the run weighs clients; the paper's weigh alike. Departure from the paper's experiments:
    they are repeated from several random starts, as the result depends on it.
    """

    purpose = "Keeps several models; each client trains the one that fits its data best."
    helps = ("label-skew", "feature-shift")
    paper = "ghosh2020ifca"

    clients_choose: ClassVar[bool] = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    clusters: int = setting(2, ge=2, description="k, the number of models")

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return [f"cluster-{k}" for k in range(self.clusters)]

    def model_of(self, partition: int) -> str:
        return self.rule_state.assigned.get(partition, self.names[0])

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        models = self.rule_state.models
        for k, name in enumerate(self.names):
            if name not in models:
                models[name] = self._first(k, arrays) if k else arrays
        return super().configure_train(server_round, arrays, config, grid)

    def _first(self, k: int, arrays: ArrayRecord) -> ArrayRecord:
        if self.first_model is None:
            raise AggregationError("IFCA needs the weights of its models: assign first_model before the run")
        entries = self.first_model(k)
        return ArrayRecord({name: encoded(entries[name]) for name in arrays})

    def group_of(self, partition: int, phase: str) -> str:
        return ""

    def records_of(self, group: str, main: ArrayRecord, phase: str) -> dict[str, ArrayRecord]:
        return {f"{CANDIDATE}{name}": self.entries(name, main) for name in self.names}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        self._chosen(answer.content)
        return Extras()

    def answered(self, partition: int, answer: Answer) -> str:
        return self._chosen(answer.content)

    def _chosen(self, content: RecordDict) -> str:
        """Return the name of the model that a client chose."""
        name = text_of(content, CHOSEN, MODEL, LONGEST_NAME)
        if name not in self.names:
            raise ReplyRefused(f"{CHOSEN}: {name!r} is none of the {self.clusters} models")
        return name

    def _read_evaluate_(self, content: RecordDict) -> tuple[RecordDict, MetricRecord, dict[str, NDArray]]:
        with refusing():
            self._chosen(content)
        return super()._read_evaluate_(content)

    def _note_evaluation_(self, partition: int, content: RecordDict, report: PhaseReport) -> None:
        report.models[partition] = self.rule_state.assigned[partition] = self._chosen(content)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * delta
