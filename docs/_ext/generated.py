"""Writes the pages that are made from data: the findings' catalogue, the spec reference, the catalogue of cards.

They can't fall behind the code, because the code reads the same data.
"""

from pathlib import Path

from sphinx.application import Sphinx

from gpustack.findings import definitions
from gpustack.pci import catalogue
from gpustack.spec import reference


def findings_page() -> str:
    """Every finding with its severity, message, explanation, remedy and source."""
    ranges = {
        "0": "A device and its readiness",
        "1": "A host's boot configuration and plan",
        "2": "Verification",
        "3": "A nova configuration",
        "4": "Flavors",
        "5": "Clean-up",
    }
    lines = ["# Findings", "", "Each code is stable: scripts and runbooks may rely on it.", ""]
    last = ""
    for code, definition in definitions().items():
        if code[3] != last:
            last = code[3]
            lines += [f"## {ranges[last]}", ""]
        lines += [f"({code.lower()})=", f"### {code}: {definition.title}", ""]
        lines += [f"{definition.severity.capitalize()}. {definition.explanation.strip()}", ""]
        lines += [f"Message:\n: `{definition.message.strip()}`", "", f"Remedy:\n: {definition.remedy.strip()}", ""]
        if definition.source:
            lines += [f"Source:\n: {definition.source.strip()}", ""]
    return "\n".join(lines)


def write(app: Sphinx) -> None:
    """Write the generated pages, each only when it changed, so that a second build is quick."""
    directory = Path(app.srcdir) / "reference" / "generated"
    directory.mkdir(exist_ok=True)
    pages = {"findings.md": findings_page(), "spec.md": reference.markdown(), "cards.md": catalogue.markdown()}
    for name, text in pages.items():
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
