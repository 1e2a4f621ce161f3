"""The page of a consortium: what its operator can know of the sites."""

import os
from datetime import UTC, datetime
from importlib.resources import files
from itertools import product

import pytest

pytest.importorskip("bokeh", reason="needs the extra watch")
pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower import annexes
from fedbn_flower.cli import main
from fedbn_flower.consortium import operator
from fedbn_flower.consortium.agreement import read, write
from fedbn_flower.consortium.authority import fingerprint, new_key, public_text
from fedbn_flower.watch.index import standing_of

from .browser import IN_A_BROWSER
from .folders import append, write_run
from .test_watch import get, served

NODES = """{"nodes": [
  {"node-id": "1", "status": "online", "online-at": "2026-11-28 08:00:00Z", "offline-at": "N/A"},
  {"node-id": "2", "status": "offline", "offline-at": "2026-11-28 09:30:00Z"},
  {"node-id": "3", "status": "registered", "offline-at": "N/A"}]}"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A consortium's, with a run in it, whose SuperLink knows three of four sites."""
    folder = tmp_path / "hospitals"
    consortium = operator.new(folder, "superlink.example.org", ("lyon", "turin", "porto", "lille"), [], {})
    for number, site in enumerate(list(consortium.sites.values())[:3], start=1):
        key = new_key().public_key()
        site.key, site.fingerprint, site.node = public_text(key), fingerprint(key), str(number)
    consortium.studies["first"] = "ab" * 32
    write(folder, consortium)
    write_run(folder / "first")
    monkeypatch.setattr(operator, "flower", lambda *words: NODES)
    return folder


def rows(text):
    """The cells of each row of the first table."""
    body = text.split("<tbody>")[1].split("</tbody>")[0]
    return [
        [cell.partition(">")[2].partition("</td>")[0] for cell in row.split("<td")[1:]]
        for row in body.split("</tr>")[:-1]
    ]


def test_it_shows_what_is_known_of_the_sites(folder):
    (folder / "doctor.txt").write_text("wrong  clock  <b>an hour ahead</b>; set it\n")
    os.utime(folder / "doctor.txt", (0, datetime(2026, 11, 28, 7, tzinfo=UTC).timestamp()))
    with served(folder, standing=standing_of(None, folder)) as server:
        assert 'href="federation"' in get(server, "")[1]
        assert "Federation hospitals" in get(server, "federation")[1]
        status, text, headers = get(server, "standing")
    assert status == 200
    assert headers["ETag"]
    assert rows(text) == [
        ["0 lyon", "admitted", "online", "now", ""],
        ["1 turin", "admitted", "offline", "2026-11-28 09:30:00Z", ""],
        ["2 porto", "admitted", "registered", "never", ""],
        ["3 lille", "not yet admitted: has it sent its line?", "", "", ""],
    ]
    for said in (
        "superlink.example.org:443",
        "days left",
        operator.versions()["torch"],
        "ab" * 32,
        "said on 2026-11-28 at 07:00 UTC",
        "wrong  clock  &lt;b&gt;an hour ahead&lt;/b&gt;; set it",
    ):
        assert said in text


def test_the_superlink_is_asked_every_30_seconds(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(operator, "flower", lambda *words: asked.append(words) or NODES)
    with served(folder, standing=standing_of(None, folder)) as server:
        for now, times in ((30.0, 1), (59.9, 1), (60.0, 2)):
            monkeypatch.setattr("fedbn_flower.watch.index.monotonic", lambda now=now: now)
            assert get(server, "standing")[0] == 200
            assert len(asked) == times


def test_another_folder_than_the_runs_is_given(folder, tmp_path, refused):
    runs = write_run(tmp_path / "runs" / "one").parent
    assert standing_of(None, runs) is None
    assert standing_of(folder, runs).folder == folder
    said = refused("watch", runs, "--consortium", runs)
    assert said.startswith(f"consortium: '{runs}' is not allowed; expected a folder with consort")


def test_without_the_annex_there_is_no_such_page(folder, monkeypatch, refused):
    monkeypatch.setattr(annexes, "is_present", lambda name: name != "consortium")
    with served(folder, standing=standing_of(None, folder)) as server:
        assert "federation" not in get(server, "")[1]
        assert get(server, "federation")[0] == 404
        assert get(server, "standing")[0] == 404
    line = refused("watch", folder, "--consortium", folder)
    assert "fedbn_flower/consortium, which is not there" in line


def test_what_is_wrong_with_its_file_is_a_line(folder):
    (folder / "consortium.toml").write_text("name = 3\n")
    with served(folder, standing=standing_of(None, folder)) as server:
        status, text, _ = get(server, "standing")
    assert (status, text.splitlines()) == (
        400,
        ["consortium.toml: name: 3 is not allowed; Input should be a valid string"],
    )


def test_the_command_shows_the_same(folder, capsys):
    assert main(["consortium", "status", str(folder)]) == 1
    said = capsys.readouterr().out
    assert said.count(" online ") == 1
    assert "2026-11-28 09:30:00Z" in said
    assert read(folder).server in said


FIGURE = "document.querySelector('.bk-Figure')"
PAGES = {
    "": f"{FIGURE} && document.querySelector('[data-part=real] table')",
    "?by=strategy&smooth=2": FIGURE,
    "run?of=avg-0&sites=on": "document.querySelectorAll('.bk-Figure').length === 2",
    "difference?run=avg-0&run=yogi-0": "document.querySelector('tbody tr')",
    "federation": "document.querySelector('[data-part=standing] table')",
}
"""Every page, and what is true once all of it is there."""
FOUND = """(async () => (await axe.run(document)).violations
  .flatMap(({id, nodes}) => nodes.map(node => `${id}: ${node.target}`)))()"""


class TestInABrowser:
    pytestmark = IN_A_BROWSER

    def test_axe_finds_nothing(self, browser, folder):
        """On every page, wide and light, narrow and dark: narrow ones scroll."""
        pytest.importorskip("axe_core_python", reason="needs axe-core-python, of the extra dev")
        axe = files("axe_core_python").joinpath("axe.min.js").read_text()
        for seed, (strategy, accuracy) in product(range(5), (("avg", 0.5), ("yogi", 0.75))):
            accuracies = (0.25, accuracy + seed / 100)
            write_run(folder / f"{strategy}-{seed}", accuracies, seed=seed, strategy=f"fed{strategy}")
        append(folder / "avg-0" / "failures.csv", [(2, "train", 1, "no answer within 5 s")])
        (folder / "doctor.txt").write_text("wrong  clock  an hour ahead; set it\n")
        with served(folder, standing=standing_of(None, folder)) as server:
            for path, is_there in PAGES.items():
                browser.open(f"{server.address}{path}")
                browser.until(f"location.href.endsWith('/{path}') && {is_there}")
                browser.run(f"{axe}; true")
                for width, scheme in ((1200, "light"), (400, "dark")):
                    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
                    browser.call("Emulation.setDeviceMetricsOverride", **size)
                    features = [{"name": "prefers-color-scheme", "value": scheme}]
                    browser.call("Emulation.setEmulatedMedia", features=features)
                    assert browser.run(FOUND) == [], (path, scheme)
