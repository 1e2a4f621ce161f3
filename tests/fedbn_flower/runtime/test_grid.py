"""How messages are put together into calls."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.runtime.grid import in_groups


@given(st.lists(st.integers(1, 30), max_size=4), st.integers(1, 9))
def test_groups_are_even_in_order_and_of_one_content(counts, size):
    contents = [object() for _ in counts]
    messages = [SimpleNamespace(content=c) for c, n in zip(contents, counts, strict=True) for _ in range(n)]
    groups = list(in_groups(messages, size))
    assert [message for group in groups for message in group] == messages
    for content, count in zip(contents, counts, strict=True):
        sizes = [len(g) for g in groups if g[0].content is content]
        assert sum(sizes) == count
        assert max(sizes) <= size
        assert max(sizes) - min(sizes) <= 1
        fewest = -(-count // size)
        assert len(sizes) == (fewest if fewest in (1, count) else fewest + fewest % 2)
    assert all(len({id(message.content) for message in group}) == 1 for group in groups)
