"""``report`` and ``compare`` on damaged folders: a page, or one line; never a traceback."""

import json
import random
import shutil

import pytest

from fedbn_flower.annexes import is_present
from fedbn_flower.cli import main, report_commands
from fedbn_flower.results.report import write_report

from .written import METRICS, summary_of, write_run, write_sweep

SEED = 46
VALUES = (None, [], {}, "", "\x1b[2J", -1, 1e400, "nan", [1], {"a": {}})


def damaged(content, rng):
    """Torn, with other bytes, without a part, empty, or JSON in which a value is of another type."""
    kind, size = rng.randrange(5), len(content)
    start, stop = sorted(rng.randrange(size + 1) for _ in range(2))
    if kind == 0:
        return content[:start]
    if kind == 1:
        changed = bytearray(content)
        for _ in range(4):
            changed[rng.randrange(size)] = rng.randrange(256)
        return bytes(changed)
    if kind == 2:
        return content[:start] + content[stop:]
    try:
        found = json.loads(content)
        found[rng.choice(list(found))] = rng.choice(VALUES)
        return json.dumps(found).encode()
    except ValueError:
        return content.replace(b",", b"", 1) if kind == 3 else content.replace(b"1", b"x", 3)


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def test_a_damaged_folder_is_a_page_or_a_line(tmp_path, monkeypatch, capsys, count):
    monkeypatch.setattr(report_commands, "write_report", write_report)
    if is_present("study"):
        monkeypatch.setattr("fedbn_flower.study.compare.save_figure", lambda *_: None)
    write_run(tmp_path / "whole", summary_of([0.5, 0.6]), METRICS)
    write_run(tmp_path / "run", summary_of([0.5, 0.6]), METRICS)
    write_sweep(tmp_path / "sweep")
    rng = random.Random(f"{SEED} {count}")
    for number in range(count):
        place = tmp_path / str(number)
        shutil.copytree(tmp_path / rng.choice(("run", "sweep")), place)
        file = rng.choice(sorted(path for path in place.rglob("*") if path.is_file()))
        file.write_bytes(damaged(file.read_bytes(), rng))
        for arguments in (["report", place], ["compare", place, tmp_path / "whole", "--to", place / "to"]):
            status = main([str(argument) for argument in arguments])
            error = capsys.readouterr().err
            assert (status, error.count("\n")) in ((0, 0), (2, 1)), (file, error)
            assert "\x1b" not in error
