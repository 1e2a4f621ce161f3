"""Every difference from Flower's engine that the documentation lists is shown by a test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "flower-app.md"
FOLDERS = ("tests/fedbn_flower/apps", "tests/integration")


def rows():
    table = PAGE.read_text().partition("## What differs from Flower's engine")[2].strip().splitlines()[2:]
    return [row for row in table if row.startswith("|")]


def test_every_row_names_tests_that_exist():
    assert len(rows()) >= 15
    for row in rows():
        *_, tests, _ = row.split(" |")
        file = ""
        for module, name in re.findall(r"`(?:(test_\w+)::)?(test_\w+)`", tests):
            file = module or file
            found = [path for folder in FOLDERS for path in (ROOT / folder).glob(f"{file}.py")]
            assert len(found) == 1, row
            assert f"def {name}(" in found[0].read_text(), row
        assert file, row
