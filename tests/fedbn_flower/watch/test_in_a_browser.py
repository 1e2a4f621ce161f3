"""The page of runs as Chromium shows it."""

import shutil
from urllib.parse import urlsplit

import pytest
from filelock import FileLock

pytest.importorskip("bokeh", reason="needs the extra watch")

from .browser import IN_A_BROWSER
from .folders import MARKUP, add_round, write_run
from .test_watch import served

CHANGE = "new Event('change', {bubbles: true})"
SOURCE = "Bokeh.documents.map(one => one.get_model_by_name('lines')).find(Boolean).data"


class TestInABrowser:
    """In one browser, whose network ends at this machine."""

    pytestmark = IN_A_BROWSER

    def test_the_numbers_of_the_page_are_those_of_the_files(self, browser, runs):
        with served(runs) as server:
            browser.open(server.address)
            assert browser.until(f"{SOURCE}.ys.length === 3")
            values = "[...document.querySelectorAll('tbody data')].map(d => d.value)"
            assert "0.7512345678901234" in browser.run(values)
            assert browser.run(f"{SOURCE}.ys[{SOURCE}.name.indexOf('avg-0')]") == [0.5, 0.7512345678901234]
            assert MARKUP in browser.run(f"{SOURCE}.name")
            assert browser.run("document.querySelectorAll('img').length") == 0
            where = "document.forms[0].elements.where"
            browser.run(f"{where}.value = 'accuracy>0.8'; {where}.dispatchEvent({CHANGE})")
            assert browser.until(f"{SOURCE}.name.join() === 'avg-1'")
            assert browser.until("document.querySelectorAll('tbody tr').length === 1")
            assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.asked
        assert {urlsplit(url).hostname for url in browser.asked if url.startswith("http")} == {"127.0.0.1"}
        assert browser.console == []

    def test_a_run_is_followed_killed_resumed_and_gone(self, browser, runs, monkeypatch):
        monkeypatch.setattr("fedbn_flower.watch.index.AGAIN", 0)
        live = write_run(runs / "live", (0.5,), rounds=200)
        with served(runs) as server:
            with FileLock(live / ".lock"):
                browser.open(f"{server.address}run?of=live&sites=on")
                assert browser.until("document.querySelector('dd').innerText === 'running'")
                add_round(live, 2, 0.6123456789012345)
                assert browser.until(f"{SOURCE}.ys[0].at(-1) === 0.6123456789012345")
                assert browser.until("document.querySelector('[data-part=rounds] data').value === '2'")
            assert browser.until("document.querySelector('dd').innerText === 'stopped'")
            with FileLock(live / ".lock"):
                for number in range(3, 201):
                    add_round(live, number, 0.5 + number / 1000)
                assert browser.until(f"{SOURCE}.ys[0].length === 200")
                assert browser.run(f"{SOURCE}.ys[0].at(-1)") == 0.7
                assert browser.until("document.querySelector('dd').innerText === 'running'")
            shutil.rmtree(live)
            assert browser.until("document.getElementById('status').innerText.includes('has gone')")
        assert browser.console == []

    def test_a_page_opened_before_the_first_round_has_what_the_rounds_bring(
        self, browser, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("fedbn_flower.watch.index.AGAIN", 0)
        early = write_run(tmp_path / "early", (), rounds=3)
        with served(tmp_path) as server:
            browser.open(f"{server.address}run?of=early")
            assert browser.until("document.querySelector('dd')?.innerText === 'stopped'")
            add_round(early, 1, 0.5)
            chosen = "document.forms[0].elements.metric.value + document.forms[0].elements.heat.value"
            assert browser.until(f"{chosen} === 'accuracyaccuracy'")
            assert browser.until(f"{SOURCE}.ys[0]?.at(-1) === 0.5")

    @pytest.mark.parametrize("kind", ["svg", "png"])
    def test_a_picture_is_saved(self, browser, runs, kind):
        with served(runs) as server:
            browser.open(f"{server.address}run?of=avg-0")
            assert browser.until(f"{SOURCE}.ys.length === 1")
            browser.run("HTMLAnchorElement.prototype.click = function () { window.saved ??= this.href; }")
            browser.run("URL.createObjectURL = blob => { window.saved = blob.text(); return ''; }")
            browser.run(f"document.querySelector('[data-save={kind}]').click()")
            saved = browser.until("window.saved")
        assert "<svg" in saved if kind == "svg" else saved.startswith("data:image/png")
