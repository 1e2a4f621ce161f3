"""What a site releases under privacy notions that hold against the server: noisy or public values only.

A site decides by its owner's bounds and the run's configuration, never by the content of a message. So a
server that asks for other splits, metrics after training, or statistics of the data is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import compress

from flwr.app import ConfigRecord, Context, Error, Message
from flwr.common import Scalar

from fedbn_flower.clients import FedAvgClient, LocalTask, NamedArrays, Update
from fedbn_flower.strategies.messages.gate import printable

from ..core.errors import UserError, described
from ..core.files import path_of
from ..core.ground.columns import TEST, VALIDATION
from ..core.ground.wire import DP_NOISE, EVAL_SPLITS, RUN, SERVER_ROUND
from ..core.partition_id import name_of_data, partition_id_of
from ..core.private import ErrorCode
from ..core.text import number_of
from ..extensions.privacy import COUNTS_AS_ONE
from ..privacy.accounts import Release, epsilon, noise_for
from ..privacy.example_privacy import ExampleTerms, plan_of, release_of_round
from ..privacy.floors import Floors, Refused
from ..privacy.local_privacy import noise_of
from ..privacy.private_run import AT_CLIENTS, NO_SEED, PrivateRun, against_server
from ..privacy.site_metrics import metrics_noise, noisy_metrics
from .ledger import Entry, SiteLedger, epsilon_of, of_same_run, path_of_ledger

LOGGER = logging.getLogger("flwr.fedbn")

UPDATE = "update"
LONGEST_NAME = 100
"""Characters of a run's name that are kept in the ledger."""
ROUNDING = 1 + 1e-9
"""Factor on a run's budget, which the noise was found for."""
UNSAID = "privacy: this client does not say why it failed, since that may quote its data; its own log does"


def refuse_evaluation(config: PrivateRun, splits: str) -> None:
    """Refuse to evaluate on training examples, or where clients send no metrics.

    Raises
    ------
    Refused
        With ``dp`` local or example, without ``dp-metrics`` or for other splits than the held-out ones.
    """
    if not config.clients_report:
        raise Refused(f"privacy: with dp {config.dp!r} this client sends no metrics")
    names = splits.split(",")
    if config.against_server and (set(names) - {TEST, VALIDATION} or len(set(names)) < len(names)):
        raise Refused(f"privacy: with dp {config.dp!r} this client is not evaluated on {splits[:100]!r}")


def training_config(config: PrivateRun, received: dict[str, Scalar]) -> dict[str, Scalar]:
    """Return the settings of a round of training, without evaluation if no metrics may leave."""
    return {**received, EVAL_SPLITS: ""} if config.against_server else received


def with_own_mechanism(config: PrivateRun, task: LocalTask, asked: ConfigRecord) -> LocalTask:
    """Return the task of a site with data of its own, whose DP-SGD is accounted by the site's own size.

    With ``dp-epsilon`` the noise is the one that the server calibrated to all sites' sizes, if it suffices
    here.

    Raises
    ------
    Refused
        When this site's epsilon would exceed ``dp-epsilon`` with this noise, or it has no training examples.
    """
    if not len(task.train):
        raise Refused("privacy: this site has no training examples")
    plan, noise = plan_of(config, task.size), config.dp_noise
    if config.dp_epsilon:
        sent = asked.get(DP_NOISE)
        noise = sent if type(sent) is float else noise_for(config.dp_epsilon, plan)
        if not epsilon(noise, plan) <= config.dp_epsilon * ROUNDING:
            raise Refused(
                f"privacy: the noise {noise:g} that the server sends gives this site epsilon "
                f"{epsilon(noise, plan):.3f}, above dp-epsilon {config.dp_epsilon:g}"
            )
    assert config.clip
    terms = ExampleTerms(noise, config.clip, (plan,), config.rounds)
    return replace(task, private=terms.mechanism_for(config.dp_seed, task.seed[-1]))


def update_of_failure(config: PrivateRun, received: NamedArrays, error: Exception) -> Update:
    """Return the update that replaces one that is not finite.

    Under client-level privacy against the server it is 0, with noise like any other. Otherwise a failure
    would leak: a server could send a model on which training diverges only with certain data.

    Raises
    ------
    Exception
        The error itself, if it is of another kind or the notion does not require to hide it.
    """
    noisy = config.against_server and config.dp != "example"
    if not (noisy and isinstance(error, FloatingPointError)):
        raise error
    LOGGER.warning("%s; this update counts 0", error)
    return Update(NamedArrays(received.by_name()), COUNTS_AS_ONE, {})


@dataclass(frozen=True)
class SitePrivacy:
    """The privacy of one site in one run: its owner's bounds, and its ledger.

    Parameters
    ----------
    config : PrivateRun
        The run's, as this site has it.
    floors : Floors
        The owner's bounds.
    ledger : SiteLedger, optional
        In the node's ``state-dir``; None without one, and if the notion is not accounted at the site.
    flower_run : int
        Flower's number of the run.
    """

    config: PrivateRun
    floors: Floors
    ledger: SiteLedger | None
    flower_run: int

    @classmethod
    def of(cls, config: PrivateRun, context: Context) -> SitePrivacy:
        """Return the privacy of a site.

        Raises
        ------
        UserError
            When the bounds in the node config are invalid, or the run's privacy is weaker than they require.
        """
        floors = Floors.checked(context.node_config, config)
        if config.dp == "local":
            floors.check_noise(noise_of(config))
        ledger, state_dir = None, context.node_config.get("state-dir")
        if state_dir and config.dp in AT_CLIENTS:
            ledger = SiteLedger(path_of_ledger(path_of(str(state_dir)), name_at_site(context)))
        return cls(config, floors, ledger, context.run_id)

    def charge_training(self, task: LocalTask, asked: ConfigRecord) -> None:
        """Charge a round of training to the ledger, before it begins.

        Raises
        ------
        UserError
            When the noise is below the owner's bound, a budget is exhausted, or the ledger cannot be read or
            written.
        """
        config = self.config
        if config.dp == "local":
            self._charge(Release(noise_of(config) / 2), UPDATE, asked)
        elif config.dp == "example" and task.private and len(task.train):
            noise = task.private(0).noise
            self.floors.check_noise(noise)
            self._charge(release_of_round(config, task.size, noise), UPDATE, asked)

    def metrics(
        self, client: FedAvgClient, received: NamedArrays, asked: ConfigRecord, server_round: int
    ) -> dict[str, float]:
        """Return a client's noisy metrics of a model, after charging them to the ledger.

        Those of the first split have no prefix. Numbers of examples are the true ones with ``dp`` example,
        where they are public, and 1 with ``dp`` local.

        Raises
        ------
        UserError
            As `charge_training`.
        """
        config = self.config
        found: dict[str, float] = {}
        client.load_to_evaluate(received)
        for i, split in enumerate(str(asked[EVAL_SPLITS]).split(",")):
            self.floors.check_noise(noise := metrics_noise(config))
            self._charge(Release(noise), f"metrics of {split}", asked)
            prefix = f"{split}-" if i else ""
            noisy = noisy_metrics(config, client, split, server_round)
            found |= {prefix + name: value for name, value in noisy.items()}
            count = len(client.task.evaluation[split]) if config.dp == "example" else COUNTS_AS_ONE
            found[f"{split}-examples" if i else "eval-examples"] = count
        return found

    def _charge(self, release: Release, what: str, asked: ConfigRecord) -> None:
        if not self.ledger:
            return
        config, noise = self.config, release.noise if self.config.dp_seed == NO_SEED else 0.0
        entry = Entry(
            run=printable(str(asked.get(RUN, "")))[:LONGEST_NAME],
            flower_run=self.flower_run,
            round=number if type(number := asked.get(SERVER_ROUND)) is int else 0,
            what=what,
            notion=config.dp,
            noise=noise,
            probability=release.probability,
            count=release.count,
            delta=self.floors.dp_max_delta or config.dp_delta,
            unit=config.dp_unit,
        )
        try:
            self.ledger.charge(entry, self._check)
        except UserError as error:  # the ledger's file
            raise Refused(str(error)) from error

    def _check(self, entries: Sequence[Entry], new: Entry) -> None:
        """Refuse a release that would exceed the run's budget or the owner's."""
        config, most = self.config, self.floors.dp_max_epsilon
        budget = config.dp_epsilon if new.what == UPDATE else config.dp_metrics
        if budget and config.dp_seed == NO_SEED:
            alike = [(entry.what == UPDATE) == (new.what == UPDATE) for entry in entries]
            of_run = of_same_run([*compress(entries, alike)], new)
            spent = epsilon_of([*of_run, new], config.dp_delta)
            if spent > budget * ROUNDING:
                answered = number_of(len(of_run), "time")
                raise Refused(
                    f"privacy: this client's budget is spent: it has answered {answered} in this "
                    f"run, and once more would have epsilon {spent:.3f}, above {budget:g}"
                )
        if most and new.epsilon > most:
            before = epsilon_of(entries, new.delta)
            raise Refused(
                f"dp-max-epsilon: this site's budget of {most:g} is spent: epsilon is {before:.3f} over all "
                f"runs, and would be {new.epsilon:.3f} with this answer"
            )


def name_at_site(context: Context) -> str:
    """Return the name of a client's ledger: by its data if they are its own, else by its partition."""
    if data_path := context.node_config.get("data-path"):
        return name_of_data(str(data_path))
    return f"client-{partition_id_of(context)}"


Answers = Callable[[Message, Context], Message]


def refusals_in_one_line(answer: Answers) -> Answers:
    """Wrap a message handler: a refusal becomes one line in the site's log, and the answer.

    A user's mistake does, too. Under notions that hold against the server, any other error appears in the
    site's log only: its text may quote the data, and a server could choose a configuration that makes it do
    so.
    """

    @wraps(answer)
    def answered(message: Message, context: Context) -> Message:
        try:
            return answer(message, context)
        except Exception as error:
            told = not against_server(context.run_config)
            if isinstance(error, Refused) or (told and isinstance(error, UserError)):
                LOGGER.warning("refused: %s", error)
                return failed(message, str(error))
            if told:
                raise
            return failed(message, _unsaid(error))

    return answered


def failed(message: Message, reason: str) -> Message:
    """Return the answer to a message on which a client failed."""
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def why_failed(config: PrivateRun, error: Exception) -> str:
    """Return the reason that a client reports for an error, as `refusals_in_one_line` does."""
    if not config.against_server or isinstance(error, Refused):
        return described(error)
    return _unsaid(error)


def _unsaid(error: Exception) -> str:
    """Log an error; return the text that replaces it in the answer."""
    LOGGER.error("not answered: %s", error, exc_info=None if isinstance(error, UserError) else error)
    return UNSAID
