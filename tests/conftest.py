"""Shared by all tests: no network, no telemetry, and which tests run where and when."""

import gc
import logging
import os
import re
import shutil
import signal
import sys
from collections import Counter
from functools import partial
from itertools import count

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "HF_HUB_OFFLINE": "1",
}
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # tests, and what their processes import, compile once
    sys.dont_write_bytecode = False
if "PYTEST_XDIST_WORKER" in os.environ:  # a core for each process: more threads only wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest
from hypothesis import settings
from xdist.scheduler import LoadGroupScheduling

from fedbn_flower.annexes import is_present
from fedbn_flower.config.making import run_config
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.checkpoints.checkpoint_folder import CheckpointFolder

from .pictures import draw_none

os.fsync = os.fstat  # of the same open files: no test pulls a plug, and hundreds would wait for the disk
os.getloadavg = lambda: (0.0, 0.0, 0.0)  # no test depends on what else the machine does
gc.disable()  # until all tests are collected: what they import stays

# The same examples in every run, however long one takes: no test depends on chance or load.
settings.register_profile("fedbn", deadline=None, derandomize=True, database=None, max_examples=40)
settings.register_profile("exhaustive", settings.get_profile("fedbn"), max_examples=100)
settings.load_profile("fedbn")

PROCESSES = {"quick": 2, "all": 3}
"""Slow tests wait for polls of Flower's too: one more than there are cores."""
SHARED = {"flwr_run": "flower", "pool": "ray"}
"""Tests with one of these fixtures are one group, in one process: what it starts is started once."""
LIBRARIES = {
    f"tests/{name}.py"
    for name in (
        "clients/test_metrics",
        "clients/test_surfaces",
        "docs/test_code_blocks",
        "docs/test_pages_with_data",
        "fedbn_flower/config/test_metric_names",
        "fedbn_flower/data/test_library_augment",
        "fedbn_flower/server/test_pooled_metrics",
        "fedbn_flower/server/test_unused_keys",
        "fedbn_flower/libraries/test_networks",
        "fedbn_flower/models/test_norms",
    )
}
"""What imports MONAI, timm or torchmetrics, six seconds together, which one process does: one group, too."""
FIRST = (
    "ray",
    "tests/integration/test_consortium.py",
    "libraries",
    "flower",
    "tests/integration/test_deployment.py",
    "tests/test_annexes.py",
    "tests/integration/test_secagg_sites.py",
    "tests/fedbn_flower/sweeps/test_experiment_files.py",
    "tests/integration/test_warm_sites.py",
    "tests/fedbn_flower/runtime/test_pairs_of_features.py",
    "tests/fedbn_flower/privacy/test_audited_runs.py",
    "tests/integration/test_wheel.py",
    "tests/integration/test_sweeps.py",
    "tests/integration/test_ray.py",
    "tests/examples/test_notebooks.py",
    "tests/integration/test_api.py",
    "tests/fedbn_flower/server/test_one_exchange.py",
    "tests/integration/test_kills.py",
    "tests/fedbn_flower/runtime/test_combinations.py",
    "tests/integration/test_app_on_ray.py",
    "tests/integration/test_runtimes.py",
    "tests/integration/test_first_steps.py",
)
"""The groups and files that take longest, so that none of them is last; between those that wait a lot stand
some that compute. Then the others with slow tests."""


def pytest_addoption(parser):
    parser.addoption("--exhaustive", action="store_true", help="also what is marked exhaustive")


def pytest_configure(config):
    if config.option.exhaustive:
        settings.load_profile("exhaustive")


def pytest_ignore_collect(collection_path, config):
    """Who wants quick tests does not even import a file of slow ones."""
    if config.option.markexpr == "not slow" and collection_path.suffix == ".py":
        return re.search(r"^pytestmark = .*mark\.slow", collection_path.read_text(), re.MULTILINE) and True


def pytest_collection_modifyitems(config, items):
    cases = Counter()
    for item in items:
        if (sampled := item.get_closest_marker("sampled")) and not item.get_closest_marker("slow"):
            name = item.nodeid.partition("[")[0]
            if cases[name] % sampled.args[0]:
                item.add_marker("exhaustive")
            cases[name] += 1
    named = any("::" in argument for argument in config.args)
    if not (config.option.exhaustive or named or "exhaustive" in config.option.markexpr):
        chosen = [item for item in items if not item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=[*{*items} - {*chosen}])
        items[:] = chosen
    slow = {}
    for item in items:
        file = item.nodeid.split("::")[0]
        shared = "libraries" if file in LIBRARIES else None
        group = next((SHARED[name] for name in SHARED if name in item.fixturenames), shared)
        item.group = group or file
        slow[item.group] = slow.get(item.group, False) or item.get_closest_marker("slow") is not None
    if hasattr(config, "workerinput"):
        ranks = {group: rank for rank, group in enumerate(FIRST)}
        items.sort(key=lambda item: (not slow[item.group], ranks.get(item.group, len(FIRST))))
        for item in items:
            if not item.nodeid.startswith(item.group):
                name_group(item)


def name_group(item):
    """Put its group behind an item's name, where the scheduler looks for it.

    xdist 3.8 does so for its marker, but in an attribute that pytest 9.2 no longer has.
    """
    named = f"{item.nodeid}@{item.group}"
    if hasattr(item, "_id"):
        item._id = type(item.id).parse(named)
    else:
        item._nodeid = named


def pytest_collection_finish():
    """What stays to the end, thousands of tests and what they import, no collector has to walk again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    loggers = logging.root.manager.loggerDict
    for name in [name for name in loggers if name.startswith(("bokeh.", "datasets.", "ray.", "torch."))]:
        del loggers[name]  # pytest would look at each of them, six times a test


def pytest_xdist_auto_num_workers(config):
    return PROCESSES["quick" if "not slow" in config.option.markexpr else "all"]


class GroupsAndFiles(LoadGroupScheduling):
    """A group is one process's, and so is a file's rest."""

    def _split_scope(self, nodeid):
        group = super()._split_scope(nodeid)
        return nodeid.split("::")[0] if group == nodeid else group


def pytest_xdist_make_scheduler(config, log):
    return GroupsAndFiles(config, log) if config.getvalue("dist") == "loadgroup" else None


POOLS = []
"""The pool, while tests that have it follow each other. Others want a process in which no Ray runs."""


@pytest.fixture
def pool():
    """Two workers of Ray."""
    if not POOLS:
        pytest.importorskip("fedbn_flower.runtime.ray")
        from fedbn_flower.runtime.ray.pool import RayPool  # half a second that other tests do not wait for

        POOLS.append(RayPool(2, verbose=False))
    return POOLS[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()  # Flower collects for every array that it reads: not what all files have left
            gc.freeze()
        if POOLS and "pool" not in getattr(nextitem, "fixturenames", ()):
            POOLS.pop().close()


@pytest.fixture
def on_the_pool(pool, monkeypatch):
    """Who starts Ray gets the pool, and leaves it as it is; how often it was closed."""
    closed = []
    background = pytest.importorskip("fedbn_flower.runtime.ray.background")
    monkeypatch.setattr(background, "start_ray", lambda config: pool)
    monkeypatch.setattr(pool, "close", lambda: closed.append(1))
    return closed


NUMBERS = count()


@pytest.fixture
def tmp_path(request, tmp_path_factory):
    """As pytest's own, which looks at the folders of all tests before for the next number of a name."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    (folder := tmp_path_factory.getbasetemp() / f"{name}_{next(NUMBERS)}").mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """One folder of decoded datasets for the session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def pictures_not_drawn(monkeypatch):
    draw_none(monkeypatch.setattr)


@pytest.fixture(scope="module")
def pictures_never_drawn():
    """The same for fixtures of a module."""
    with pytest.MonkeyPatch.context() as patch:
        draw_none(patch.setattr)
        yield


def draw_few(replace):
    if is_present("study"):
        from fedbn_flower.study import intervals

        replace(intervals, "intervals_of_cases", partial(intervals.intervals_of_cases, draws=20))


@pytest.fixture
def few_draws(monkeypatch):
    """Runs in this process whose intervals nobody looks at: they take longer than a small run's training."""
    draw_few(monkeypatch.setattr)


@pytest.fixture(scope="module")
def draws_always_few():
    """The same for fixtures of a module."""
    with pytest.MonkeyPatch.context() as patch:
        draw_few(patch.setattr)
        yield


def save_empty(figure, buffer, **options):
    buffer.write("<svg></svg>" if options["format"] == "svg" else b"")


@pytest.fixture
def empty_figures(monkeypatch):
    """For tests of a report's words: figures are made and counted, and nothing of them is drawn."""
    monkeypatch.setattr("fedbn_flower.results.plotting.svg_figure.InlineFigure._save", save_empty)


@pytest.fixture(scope="session")
def write_site():
    """Writes a client's share of a simulation as a site's own folder."""

    def write(config, partition, folder):
        dataset, partitions = inputs_of(config).dataset, inputs_of(config).partitions
        rows = partitions.train[partition]
        folder.mkdir()
        np.save(folder / "train-images.npy", dataset.train.columns["x"][rows])
        np.save(folder / "train-labels.npy", dataset.train.columns["y"][rows])
        np.save(folder / "test-images.npy", dataset.test.columns["x"])
        np.save(folder / "test-labels.npy", dataset.test.columns["y"])

    return write


@pytest.fixture(scope="session")
def configured(cache_dir):
    """A configuration by keys with underscores; small unless told otherwise."""

    def make(**values):
        small = {"dataset": "digits", "rounds": 2, "local_epochs": 1, "batch_size": 256, "backend": "inline"}
        given = small | {"cache_dir": str(cache_dir)} | values
        return run_config({key.replace("_", "-"): value for key, value in given.items()})

    return make


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """The folder that the run in ``whole`` leaves where it is killed after its second checkpoint."""
    save, saved = CheckpointFolder.save, []

    def save_and_copy(folder, checkpoint, memories, writer):
        save(folder, checkpoint, memories, writer)
        saved.append(1)
        if len(saved) == 2:
            writer.wait()
            shutil.copytree(tmp_path / "whole", tmp_path / "parts")

    monkeypatch.setattr(CheckpointFolder, "save", save_and_copy)
    return tmp_path / "parts"
