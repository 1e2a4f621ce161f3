"""What is refused in one line."""

from contextlib import contextmanager

import pytest

from fedbn_flower import UserError


@contextmanager
def one_line(words):
    """A UserError of one line with these words."""
    with pytest.raises(UserError) as caught:
        yield
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
