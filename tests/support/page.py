"""A page as a browser would read it. The page is XML too, so Python's strict parser finds each unescaped character."""

from __future__ import annotations

import base64
import hashlib
import re
from xml.etree import ElementTree

VOID = ("meta", "img", "br", "hr", "link", "input", "rect")
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "footer", "details"),
    *(
        "summary",
        "h1",
        "h2",
        "h3",
        "h4",
        "p",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
        "div",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
    ),
    *("th", "td", "a", "span", "i", "b", "strong", "small", "code", "time", "svg", "rect"),
}
"""All elements of the page: nothing that loads, runs or sends anything."""


class Page:
    """A parsed page."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = ElementTree.fromstring(text)  # noqa: S314 - the test's own page
        self.all = list(self.root.iter())

    def find(self, path: str) -> list[ElementTree.Element]:
        """The elements of a path of ElementTree."""
        return self.root.findall(path)

    def section(self, name: str) -> str:
        """The text of the section with this id."""
        (element,) = self.find(f".//*[@id='{name}']")
        return words(element)

    @property
    def words(self) -> str:
        """All text that people see."""
        (body,) = self.find("./body")
        return words(body)

    def problems(self) -> list[str]:
        """Everything that a safe, self-contained and accessible page does not have."""
        found = [f"element {element.tag}" for element in self.all if element.tag not in ALLOWED]
        ids = [element.attrib["id"] for element in self.all if "id" in element.attrib]
        found += [f"id {name} twice" for name in {*ids} if ids.count(name) > 1] if len(ids) < 2000 else []
        known = {*ids}
        for element in self.all:
            for name, value in element.attrib.items():
                if name.startswith("on") or name in ("style", "src", "srcset", "action", "formaction", "background"):
                    found.append(f"attribute {name} of {element.tag}")
                if name == "href" and not (value.startswith("#") and value[1:] in known):
                    found.append(f"link to {value}")
                if name == "aria-labelledby" and value not in known:
                    found.append(f"label {value}")
            if element.tag not in VOID and element.tag not in ("i", "td", "svg") and not words(element).strip():
                found.append(f"empty {element.tag}")
        for table in self.find(".//table"):
            if table.find("caption") is None or any("scope" not in cell.attrib for cell in table.iter("th")):
                found.append("table without caption or scopes")
            width = len(table.findall("./thead/tr/th"))
            if any(len(list(row)) != width for row in table.findall("./tbody/tr")):
                found.append("row with another number of cells")
        (style,) = self.find("./head/style")
        if re.search(r"url\(|@import|expression|src\s*:", style.text or ""):
            found.append("style that loads something")
        (policy,) = self.find("./head/meta[@http-equiv='Content-Security-Policy']")
        digest = base64.b64encode(hashlib.sha256((style.text or "").encode()).digest()).decode()
        expected = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        if policy.attrib["content"] != expected:
            found.append(f"policy {policy.attrib['content']}")
        return found


def words(element: ElementTree.Element) -> str:
    """The text of an element with that of all elements in it."""
    return " ".join(" ".join(element.itertext()).split())
