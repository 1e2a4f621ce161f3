"""One simulated run, in this process or on Ray."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from fedbn_flower.strategies.partial_sums import can_be_summed, take_sums

from ..config.run_config import RunConfig
from ..core.errors import Conflict, refuse
from ..core.notes import Note
from ..core.stored import CONFIG
from ..extensions.devices import NONE
from ..job.inputs import inputs_of
from ..records.events import Observer
from ..records.summary import Summary
from ..results.manifest import read_manifest
from ..results.resume import check_data, checkpoints_of, load_checkpoint
from ..results.run_directory import default_run_folder, prepare_run_folder, run_folder_locked
from ..results.run_folder import RunFolder
from ..server.extensions import may_run_in_workers, nodes_keep_state
from ..server.federation import Federation
from ..site.cohorts import cohort_size, evaluate_of
from .grid import InlineGrid, LocalGrid
from .pools import Pool, Work, grid_on
from .recorded_run import check_installed, recorded_run


def simulate(
    federation: Federation, folder: Path, pool: Pool | None, observers: Iterable[Observer] = ()
) -> Summary:
    """Run a federation on the pool's workers, or in this process without a pool, and return its summary.

    With ``resume`` in its configuration it goes on in that folder from the last checkpoint: the server's
    state and every client's are those of the checkpoint's round, so the final model is the same, bit for
    bit, as if the run had never stopped.

    Raises
    ------
    UserError, RunFailed
        See `Federation.run`; what was done so far stays in the folder.
    """
    config = federation.config
    grid = make_grid(federation, pool)
    with run_folder_locked(config, folder):
        checkpoint = load_checkpoint(config, clients_here=True) if config.resume else None
        if config.resume:
            check_data(federation)
        if checkpoint:
            grid.restore_memories(partial(checkpoints_of(config).memory, checkpoint))
        results = RunFolder(folder, federation, grid.client_memory, checkpoint)
        summary = recorded_run(federation, grid, results, observers, checkpoint)
    assert summary  # of a run that did not fail
    return summary


def check_simulation(config: RunConfig) -> None:
    """Refuse what only SuperNodes can do, and what is not installed.

    Raises
    ------
    UserError
        When clients would have no data, nothing says how fast they are and that decides, or they are to
        start from memories that a simulation does not have; when a tracker is not installed.
    """
    check_installed(config)
    refuse(_conflicts(config))


def _conflicts(config: RunConfig) -> Iterator[Conflict]:
    """Yield what only SuperNodes can do."""
    if config.inspect:
        yield Conflict("inspect", True, "false: simulated clients are inspected by fedbn-sim inspect")
    if not inputs_of(config).dataset.has_examples:
        yield Conflict("dataset", config.dataset, "one with examples: simulated clients have no other data")
    if config.asynchronous and config.devices == NONE:
        wanted = f"'uniform' or others in a simulation with protocol {config.protocol!r}"
        yield Conflict("devices", config.devices, f"{wanted}: they decide who answers when")
    if config.continue_state:
        yield Conflict("continue-state", True, "false: simulated clients have no state-dir")


def checked(configs: Iterable[RunConfig]) -> list[tuple[Note, ...]]:
    """Raise every mistake in a job's configurations; return what is learnt, once for runs of the same data.

    Raises
    ------
    UserError
        As `check_simulation` and `Federation` do.
    """
    learnt: dict[Path, tuple[Note, ...]] = {}
    for config in configs:
        check_simulation(config)
        federation = Federation(config)
        learnt.setdefault(federation.dataset.folder, federation.learnt)
    return list(learnt.values())


def compared_alike(configs: Sequence[RunConfig]) -> list[RunConfig]:
    """Return the configurations of runs that are compared: clients are evaluated on the same examples in all.

    If ``eval-data auto`` is local in one of them, it is so in all in which it can be; but a sweep that began
    with all on everybody's examples, as it was in earlier versions, goes on so.
    """
    cells = Path(configs[0].run_dir).glob(f"*/{CONFIG}") if configs[0].run_dir else ()
    begun = [read_manifest(path.parent, "resume") for path in cells]
    if begun and all(one.get("eval-data") == "global" for one in begun):
        auto = {"eval_data": "global"}
        return [one.model_copy(update=auto) if one.eval_data == "auto" else one for one in configs]
    found = [inputs_of(config) for config in configs]
    if not any(one.config.eval_data == "auto" and one.evaluates_locally for one in found):
        return list(configs)
    return [
        one.config.model_copy(update={"eval_data": "local"})
        if one.config.eval_data == "auto" and not (one.evaluates_locally or one.must_have_held_out)
        else one.config
        for one in found
    ]


def make_grid(federation: Federation, pool: Pool | None) -> LocalGrid:
    """A Grid for this federation with one virtual node for each partition."""
    config = federation.config
    # Answers of a buffer have weights that workers do not know.
    alone = federation.buffers or not may_run_in_workers(config)
    if sums := federation.shares and not alone and can_be_summed(federation.strategy):
        take_sums(federation.strategy)
    # Its clients do not resume by themselves: their memories are put back.
    run_config = config.model_copy(update={"resume": ""}).to_user_config()
    settings = (config.num_clients, run_config, cohort_size(federation.inputs), sums)
    return grid_on(
        pool,
        InlineGrid(*settings),
        Work(
            config.rounds,
            federation.inputs.remembers or nodes_keep_state(config),
            federation.inputs.partitions.train.sizes.tolist(),
            evaluate_of(federation.inputs) is not None,
            ("dataset", config.dataset, federation.dataset.digest),
        ),
    )


def prepared_folder(config: RunConfig) -> Path:
    """The folder of the results, which a run can be written to, or be resumed in.

    Raises
    ------
    UserError
        When it is in use, cannot be made, or holds no run to go on with.
    """
    if config.run_dir == "auto":
        return default_run_folder()
    folder = Path(config.run_dir)
    if config.resume:
        with run_folder_locked(config, folder):
            load_checkpoint(config, clients_here=True)
    else:
        prepare_run_folder(folder)
    return folder
