"""The memory that is left, and data that do not fit into it."""

import pytest

from fedbn_flower.core import free_memory
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.free_memory import available_memory, check_fits


def test_a_container_s_limit_counts(tmp_path, monkeypatch):
    """What its cache holds can be had; without a limit the machine's own memory counts."""
    limit, used, stat = (tmp_path / name for name in ("max", "current", "stat"))
    used.write_text("700\n")
    stat.write_text("anon 600\ninactive_file 80\n")
    limit.write_text("1000\n")
    monkeypatch.setattr(free_memory, "CGROUPS", [(str(limit), str(used), str(stat))])
    assert available_memory() == 1000 - 700 + 80
    limit.write_text("max\n")
    assert available_memory() > 10_000


def test_what_does_not_fit_is_one_line(monkeypatch):
    monkeypatch.setattr(free_memory, "available_memory", lambda: 3 * 2**30)
    check_fits("dataset", "10 rows of 't.csv'", 3 * 2**30)
    with pytest.raises(UserError) as caught:
        check_fits("dataset", "60000000 rows of 't.parquet'", 3 * 2**40 + 1)
    assert str(caught.value) == (
        "dataset: too large: 60000000 rows of 't.parquet' would take 3,072.0 GiB of memory, "
        "of which 3.0 are free"
    )
