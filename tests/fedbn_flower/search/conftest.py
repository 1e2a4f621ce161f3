"""Searches in this process, small ones."""

import pytest

from fedbn_flower import cli

from ..results.written import csv_rows


@pytest.fixture
def search(cache_dir, tmp_path, monkeypatch):
    """The command with small runs of FedAdam, in an empty folder; its exit status."""
    monkeypatch.chdir(tmp_path)
    small = {"--strategy": "fedadam", "--client": "shared", "--rounds": 3, "--batch-size": 240}

    def run(arguments):
        words = arguments.split()
        given = {} if "--resume" in words else {f: v for f, v in small.items() if f not in words}
        first = {**given, "--cache-dir": cache_dir, "--backend": "inline"}
        return cli.main([*(str(word) for pair in first.items() for word in pair), *words])

    return run


def table(folder):
    """``search.csv``, but for the seconds."""
    rows = csv_rows(folder / "search.csv")
    for row in rows:
        del row["seconds"]
    return rows
