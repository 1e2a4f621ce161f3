"""One browser for the tests of a file."""

import pytest

from .browser import Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
