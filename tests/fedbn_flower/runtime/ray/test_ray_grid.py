"""How a round is given out to workers, without any."""

from types import SimpleNamespace

import pytest
from flwr.app import MessageType, RecordDict

from fedbn_flower.runtime.grid import in_groups, partition_of
from fedbn_flower.runtime.ray import grid as ray_grid
from fedbn_flower.runtime.ray import pool as ray_pool
from fedbn_flower.runtime.ray.clusters import share_of_a_gpu
from fedbn_flower.runtime.ray.grid import AHEAD, Call, RayGrid
from fedbn_flower.runtime.ray.pool import RayPool

WORKERS = 2


def grid_of(count, examples=(), content=None, phase=MessageType.TRAIN, **settings):
    """A grid of so many clients, and the messages of a round."""
    pool = SimpleNamespace(workers=[None] * WORKERS, start_run=lambda *run: None, inline=True)
    grid = RayGrid(pool, count, {}, examples=examples, **settings)
    contents = content or [RecordDict()] * count
    return grid, [
        grid.create_message(one, phase, node, "")
        for one, node in zip(contents, grid.get_node_ids(), strict=True)
    ]


def calls(count, *given, **settings):
    """The calls of a round of so many clients: their partitions, and whether they are summed."""
    grid, messages = grid_of(count, *given, **settings)
    made = grid._longest_first(grid._calls(messages))
    return [[partition_of(message) for message in call.messages] for call in made], {c.summed for c in made}


@pytest.mark.parametrize(
    ("count", "cohort", "summed"), [(57, 1, True), (48, 1, False), (48, 8, True), (9, 8, True)]
)
def test_groups_are_summed_where_that_leaves_nobody_idle(count, cohort, summed):
    """One by one, four groups for each of two workers are wanted: of 57 there are eight, of 48 six."""
    groups, found = calls(count, cohort=cohort, sums=True)
    assert found == {summed}
    assert [i for group in groups for i in group] == list(range(count))
    assert calls(count, cohort=cohort)[1] == {False}  # a rule that wants every answer


def test_groups_of_several_contents_or_other_phases_are_not_summed():
    contents = [RecordDict() for _ in range(2)]
    assert calls(64, content=[contents[i % 2] for i in range(64)], cohort=8, sums=True)[1] == {False}
    assert calls(64, phase=MessageType.EVALUATE, cohort=8, sums=True)[1] == {False}


def test_who_is_evaluated_in_lockstep_is_given_out_in_cohorts():
    """Otherwise sixteen are in shares of two, four for each worker."""
    groups, _ = calls(16, phase=MessageType.EVALUATE, cohort=8, evaluated_at_once=True)
    assert groups == [[*range(8)], [*range(8, 16)]]
    assert calls(16, phase=MessageType.EVALUATE, cohort=8)[0] == [[i, i + 1] for i in range(0, 16, 2)]


@pytest.mark.parametrize(("cohort", "sizes"), [(8, [5, 5, 5]), (1, [1, *[2] * 7])])
def test_cohorts_stay_as_they_were_where_a_run_moves_within_a_phase(cohort, sizes, monkeypatch):
    """Of twenty clients in cohorts of five, one is done: fifteen anew would be cohorts of seven and eight.

    One by one, they are in eight shares, four for each worker.
    """
    grid, messages = grid_of(20, cohort=cohort)
    groups = list(in_groups(messages, 8))
    monkeypatch.setattr(grid, "_run", lambda calls, timeout: [call.messages for call in calls])
    assert [len(group) for group in grid.work_in_groups(groups[1:], False, None)] == sizes


def test_what_takes_longest_is_begun_first_among_a_few():
    """Calls of one client each: a client's examples are its number times seven, modulo 23."""
    examples = [7 * i % 23 for i in range(20)]
    few = AHEAD * WORKERS // 2
    order = [i for (i,) in calls(20, examples, content=[RecordDict() for _ in range(20)])[0]]
    assert order != list(range(20))
    for start in range(0, 20, few):
        part = order[start : start + few]
        assert sorted(part) == list(range(20))[start : start + few]
        assert [examples[i] for i in part] == sorted((examples[i] for i in part), reverse=True)


@pytest.mark.parametrize(
    ("retried", "given"),
    [((), [[0, 2], [1, 3]]), ((0,), [[0], [1, 2]]), ((0, 1, 2), [[0], [1]]), ((2,), [[0], [1]])],
)
def test_a_call_that_is_tried_again_has_its_worker_for_itself(monkeypatch, retried, given):
    monkeypatch.setattr(ray_grid.ray, "put", lambda content: content)
    handle = SimpleNamespace(remote=lambda *arguments: arguments, options=lambda **options: handle)
    pool = SimpleNamespace(
        workers=[SimpleNamespace(handle=handle)] * WORKERS, start_run=lambda *run: None, inline=True,
        started=range(WORKERS),
    )  # fmt: skip
    grid = RayGrid(pool, 9, {})
    messages = [
        grid.create_message(RecordDict(), MessageType.TRAIN, node, "") for node in grid.get_node_ids()
    ]
    made = [Call(i, [message], retried=i in retried) for i, message in enumerate(messages)]
    phase = ray_grid._Phase(pool, {}, made, None, True, False)
    phase._submit()
    assert sorted([call.order for call, _ in queue] for queue in phase.running.values()) == given


@pytest.mark.parametrize(
    ("clients", "inline", "kept"),
    [(2048, True, "what came"), (2049, True, "put away: a memory"), (4, False, "put away: a memory")],
)
def test_memories_of_many_clients_and_in_a_cluster_go_to_this_machines_object_store(
    monkeypatch, clients, inline, kept
):
    """Where results come to the driver, those of few stay in its memory; other machines may be lost."""
    store = SimpleNamespace(get=lambda reference: "a memory", put=lambda value: f"put away: {value}")
    monkeypatch.setattr(ray_grid, "ray", store)
    pool = SimpleNamespace(workers=[None], start_run=lambda *run: None, inline=inline)
    assert RayGrid(pool, clients, {})._memories.kept("what came") == kept


@pytest.mark.parametrize(
    ("workers", "gpus", "share"), [(1, 4, 1.0), (4, 4, 1.0), (4, 2, 0.5), (5, 2, 0.3333), (7, 1, 0.1428)]
)
def test_workers_have_even_shares_of_gpus(workers, gpus, share):
    """Five on two GPUs: three on one of them."""
    assert share_of_a_gpu(workers, gpus) == share


def test_a_worker_that_starts_says_what_the_run_that_waits_for_it_asks(monkeypatch):
    """One that was begun in the run before, on other data or none, is asked anew."""
    monkeypatch.setattr(ray_pool.ray, "get", lambda calls: calls)
    asked = {name: SimpleNamespace(remote=lambda name=name: name) for name in ("data", "process_id")}
    pool = RayPool.__new__(RayPool)
    pool.inline, pool._unusable = False, set()
    pool.workers, pool.starting = [SimpleNamespace(**asked)], {0: "of the run before"}
    pool.check_data("dataset", "digits", "a digest")
    assert pool.starting == {0: "data"}
