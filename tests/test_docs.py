"""The documentation: its links lead somewhere, its blocks are known, its pages are in the site."""

import re
from functools import cache
from itertools import pairwise

import yaml

from .docs.pages import DOCS, PAGES, README, ROOT, SITE, blocks_of, without_code

OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
NAMED_LINK = re.compile(r"^\[[^\]]+\]: (?!https?:)([^#\s]*)(?:#(\S*))?$", re.MULTILINE)
GENERATED = re.compile(r"^<!-- \w+: generated.*?^<!-- end -->\n", re.MULTILINE | re.DOTALL)
PATH = re.compile(
    r"`((?:benchmarks|clients|deploy|docs|examples|experiments|fedbn_flower|scripts|strategies|tests)/[^`\s:]*)"
)


def name(page):
    return str(page.relative_to(ROOT))


@cache
def anchors(page):
    """What GitHub calls a page's headings."""
    titles = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def check(target, heading):
    assert target.exists(), target
    if heading:
        assert heading in anchors(target), f"{target}#{heading}"


def test_links_lead_to_files_and_headings():
    for page in (*PAGES, *OTHERS):
        text = page.read_text()
        for place, heading in LINK.findall(text) + NAMED_LINK.findall(text):
            check((page.parent / place).resolve() if place else page, heading)


def test_files_that_pages_name_exist():
    named = {(name(page), path) for page in (*PAGES, OTHERS[0]) for path in PATH.findall(page.read_text())}
    assert [one for one in named if not list(ROOT.glob(one[1].rstrip("/")))] == []


def test_lists_and_tables_begin_after_an_empty_line():
    """Else they are lines of the paragraph before, in the site."""
    kinds = {"|": "table", "- ": "list"}
    for page in PAGES:
        for before, line in pairwise(without_code(page.read_text()).splitlines()):
            for sign, kind in kinds.items():
                if line.startswith(sign) and before.strip():
                    assert before.startswith((sign, "  ")), f"{name(page)}: {kind} {line}"


def test_every_block_has_a_language_that_a_test_knows():
    languages = {block.name: block.language for page in [*PAGES, OTHERS[0]] for block in blocks_of(page)}
    assert {
        at: language
        for at, language in languages.items()
        if language not in {"bash", "python", "toml", "text"}
    } == {}


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 140


def test_what_is_written_by_hand_stays_short():
    """All pages but the notebook of results, without what is generated: reference.md and marked tables."""
    pages = [page for page in SITE if page.parent.name != "results" and page.name != "reference.md"]
    texts = (GENERATED.sub("", page.read_text()) for page in pages)
    assert sum(len(text.splitlines()) for text in texts) <= 5500


def pages_of(entry):
    """The files that a part of the navigation names."""
    if isinstance(entry, str):
        return [entry]
    parts = entry if isinstance(entry, list) else entry.values()
    return [page for part in parts for page in pages_of(part)]


def test_every_page_is_in_the_navigation_once():
    nav = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(nav) == sorted(str(page.relative_to(DOCS)) for page in SITE)


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{citation["version"]}"' in project
    assert f'license = "{citation["license"]}"' in project
    assert f'name = "{citation["authors"][0]["name"]}"' in project
    assert citation["cff-version"] == "1.2.0"


def test_the_page_of_a_site_lists_all_files_of_its_room():
    room, worker = ROOT / "fedbn_flower/site", ROOT / "fedbn_flower/warm"
    rows = re.findall(
        r"^\| `([\w/]+\.py)` \|", (ROOT / "docs/what-runs-at-a-site.md").read_text(), re.MULTILINE
    )
    files = [path.relative_to(room) for path in room.rglob("*.py")]
    files += [path.relative_to(worker.parent) for path in worker.rglob("*.py")]
    assert sorted(rows) == sorted(str(path) for path in files if path.name != "__init__.py")


def test_every_step_of_a_round_is_where_the_page_says():
    words = re.findall(r"`([\w./]+)`", (ROOT / "docs/one-round.md").read_text())
    sources = [(ROOT / word).read_text() for word in words if word.endswith(".py")]
    names = [word for word in words if not word.endswith(".py") and word != "server_step"]
    assert len(names) >= 20
    for cls, _, function in (word.rpartition(".") for word in names):
        defined = re.compile(
            rf"^class {cls}\b.*^    def {function}\(" if cls else rf"^(def|class) {function}\b", re.M | re.S
        )
        assert any(map(defined.search, sources)), (cls, function)
