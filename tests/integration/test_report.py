"""The report of real runs, seen in a browser."""

import shutil
import subprocess

import pytest
from matplotlib.image import imread

from fedbn_flower.cli import main

from .processes import LONG

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is installed"),
]

LINE = "JSON.parse(svg.dataset.told)[0]"


@pytest.fixture(scope="module")
def runs(tmp_path_factory, cache_dir, pictures_never_drawn, draws_always_few):
    """A run of two clients, one of many, and a sweep, whose reports are written by the command."""
    folder = tmp_path_factory.mktemp("runs")
    asked = {
        "two": "--rounds 3",
        "many": "--rounds 2 --num-clients 40 --partition iid --eval-data local",
        "sweep": "--rounds 2 --strategy fedavg,fedadam --client silobn,fedbn",
    }
    common = ["--backend", "inline", "--cache-dir", str(cache_dir), "--run-dir"]
    for name, words in asked.items():
        assert main([*words.split(), *common, str(folder / name)]) == 0
        assert main(["report", str(folder / name)]) == 0
    assert main(["compare", str(folder / "two"), str(folder / "sweep"), "--to", str(folder / "compare")]) == 0
    (folder / "compare" / "compare.html").rename(folder / "compare" / "report.html")
    return folder


def browse(page, profile, *flags):
    """What the browser printed; nothing may be in its console."""
    own = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    command = [BROWSER, *own, f"--user-data-dir={profile}", *flags, page.as_uri()]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LONG)
    assert "CONSOLE" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["two", "many", "sweep", "compare"])
def test_a_browser_shows_it(runs, name, tmp_path):
    page, pdf = runs / name / "report.html", tmp_path / "page.pdf"
    colours = {}
    themes = {"light": ["--dump-dom", f"--print-to-pdf={pdf}"], "dark": ["--force-dark-mode"]}
    if name in ("many", "sweep"):  # of the same colours as the others
        del themes["dark"]
    for theme, flags in themes.items():
        picture = tmp_path / f"{theme}.png"
        printed = browse(
            page, tmp_path / "profile", f"--screenshot={picture}", "--window-size=500,1600", *flags
        )
        if theme == "light":
            assert printed.count("<svg") == page.read_text().count("<svg") > 0
            assert "For a paper</h2>" in printed
            assert pdf.read_bytes().startswith(b"%PDF")
        pixels = imread(picture)[..., :3]
        colours[theme] = pixels[5, 5]
        assert (abs(pixels - pixels[5, 5]).max(-1) > 0.2).mean() > 0.01  # ink
        assert (abs(pixels[:, -8:] - pixels[5, 5]) < 0.02).all()  # nothing sticks out at the side
    assert colours["light"].min() > 0.95
    assert "dark" not in colours or colours["dark"].max() < 0.2


def test_a_column_sorts_its_table_and_a_line_tells_its_values(runs, tmp_path):
    named = "tests.fedbn_flower.watch.browser"
    watch = pytest.importorskip(named, exc_type=ImportError, reason="needs the extra watch")
    browser = watch.Browser(tmp_path)
    browser.open((runs / "sweep" / "report.html").as_uri())
    table = "document.querySelector('table')"
    assert browser.until(f"{table}.querySelectorAll('th button').length > 2")
    cells = f"[...{table}.tBodies[0].rows].map(row => parseFloat(row.cells[2].innerText))"
    before = browser.run(cells)
    for sign in (1, -1):
        browser.run(f"{table}.querySelectorAll('th button')[2].click()")
        assert browser.run(cells) == sorted(before, key=lambda value, sign=sign: sign * value)
    rates = ["1e-3", "0.01", "0.05", "0.1", "0.5", "1"]
    rows = f"{rates[::-1]}.map(text => ({{cells: [{{textContent: text, className: ''}}]}}))"
    assert browser.run(f"{rows}.sort(order(0, false)).map(row => row.cells[0].textContent)") == rates
    browser.run(f"""svg = [...document.querySelectorAll('svg[data-told]')].at(-1);
        const at = new DOMPoint({LINE}[3][1], {LINE}[4][1]).matrixTransform(svg.getScreenCTM());
        const moved = {{clientX: at.x, clientY: at.y, bubbles: true}};
        svg.dispatchEvent(new PointerEvent('pointermove', moved))""")
    assert browser.run(f"document.getElementById('told').innerText.includes({LINE}[6][1])")
    assert browser.console == []
    browser.close()
