"""One browser for the tests of a file, and the runs that they look at."""

import pytest

from .browser import Browser
from .folders import MARKUP, write_run


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    for seed, accuracy in enumerate((0.7512345678901234, 0.8125)):
        write_run(folder / f"avg-{seed}", (0.5, accuracy), seed=seed)
    write_run(folder / MARKUP, (0.25,), strategy="fedyogi", names=(MARKUP, "noisy"))
    return folder
