"""A report as a browser reads it."""

from html.parser import HTMLParser

from fedbn_flower.results.report import write_report


class Page(HTMLParser):
    """The text of a page's tables, headings and preformatted parts; and that every element is closed."""

    ALONE = {"meta", "link", "path", "use", "image", "rect"}

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.links = [], {}, []
        self.rows = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.links += [value for key, value in attrs if key in ("href", "src", "xlink:href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in self.ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.links += [value for key, value in attrs if key in ("href", "src", "xlink:href")]

    def handle_endtag(self, tag):
        if tag not in self.ALONE:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        elif self.open:
            self.text.setdefault(self.open[-1], []).append(data)


def page(folder):
    return Page(write_report(folder).read_text())
