"""What is refused in one line."""

from contextlib import contextmanager

import pytest

from fedbn_flower import UserError


@contextmanager
def one_line(*words):
    """A UserError of one line with all of these words."""
    with pytest.raises(UserError) as caught:
        yield
    for part in words:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
