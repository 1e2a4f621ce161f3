"""The pages of the documentation and their code blocks."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
SITE = sorted(DOCS.rglob("*.md"))
PAGES = [README, *SITE]

BLOCK = re.compile(
    r"^(?P<fence>`{3,}) *(?P<language>[\w-]*) *(?P<words>.*?)\n(?P<body>.*?)^(?P=fence) *$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    page: Path
    line: int
    language: str
    body: str

    @property
    def name(self) -> str:
        """Where it is, for a person."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """What its first line calls the file that it is: ``# my_rules.py``."""
        found = re.match(r"# (\w+\.py)\n", self.body)
        return found[1] if found else None


def blocks_of(page: Path) -> list[Block]:
    """Its code blocks, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["language"], found["body"])
        for found in BLOCK.finditer(text)
    ]


def blocks(language: str) -> list[Block]:
    """All code blocks of a language."""
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]


def without_code(text: str) -> str:
    """A page's text without its code blocks and its list of links."""
    return re.sub(r"^\[[^\]]+\]: \S+$", "", BLOCK.sub("\n", text), flags=re.MULTILINE)
