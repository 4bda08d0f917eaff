"""The pages of findings: one for each code, and a list of all."""

from collections.abc import Mapping

from reporters import reporters

from gpustack.base.findings import Definition, definitions
from gpustack.cli.registry import by_job

_RANGES = {
    "0": "A device and its readiness",
    "1": "A host's boot configuration and plan",
    "2": "Verification",
    "3": "A nova configuration",
    "4": "Flavors",
    "5": "Clean-up",
    "6": "A host in service",
    "7": "GPUs in service",
    "8": "Guests",
    "9": "GPUs in service and guests, continued",
}


def findings_page() -> str:
    """The list of all findings. Its anchors are the addresses that gpustack before 0.2.0 prints."""
    lines = ["# Findings", "", "Each code is stable: scripts and runbooks may rely on it.", ""]
    for first, title in _RANGES.items():
        of_range = {code: definition for code, definition in definitions().items() if _range(code) == first}
        lines += [f"## {title}", "", "| code | severity | finding |", "|---|---|---|"] if of_range else []
        for code, definition in of_range.items():
            link = f'<span id="{code.lower()}"></span>[{code}](../findings/{code.lower()}.md)'
            lines.append(f"| {link} | {_badge(definition.severity)} | {definition.title} |")
        lines.append("")
    return "\n".join(lines)


def finding_pages() -> Mapping[str, str]:
    """The text of each finding's page by its name, such as ``gpu115.md``."""
    return {f"{code.lower()}.md": _page(definition) for code, definition in definitions().items()}


def _page(definition: Definition) -> str:
    # No entry of the navigation: every page would contain all of them.
    code = definition.code
    lines = ["---", "orphan: true", "---", f"({code.lower()})=", f"# {code}: {definition.title}", ""]
    lines += [_badge(definition.severity), "", definition.explanation.strip(), ""]
    lines += [f"Message:\n: `{definition.message.strip()}`", "", f"Remedy:\n: {definition.remedy.strip()}", ""]
    lines += [f"Basis:\n: `{definition.basis}`", ""] if definition.basis else []
    lines += [f"Source:\n: {definition.source.strip()}", ""] if definition.source else []
    return "\n".join([*lines, *_reporters(code)])


def _reporters(code: str) -> list[str]:
    commands, playbooks = reporters()[code]
    lines = ["## Commands that report it", ""]
    if commands:
        lines += ["| Job | Commands |", "|---|---|"]
        for job, of_job in by_job(commands).items():
            links = (f"[{name}](../generated/commands.md#gpustack-{name.replace(' ', '-')})" for name in of_job)
            lines.append(f"| {job} | {', '.join(links)} |")
        lines.append("")
    if playbooks:
        names = ", ".join(f"`{name}`" for name in playbooks)
        lines += [f"[Playbooks](../playbooks.md): {names}.", ""]
    return [
        *lines,
        "This list comes from gpustack's code: each entry contains the check. Some use its result without printing it.",
        "[All findings](../generated/findings.md)",
        "",
    ]


def _range(code: str) -> str:
    """The first digit; the codes of causes that were split off later continue after those of the verification."""
    if "GPU530" <= code < "GPU570":
        return "3"
    return "1" if "GPU216" <= code < "GPU260" else code[3]


def _badge(severity: str) -> str:
    return f"[{severity}]{{.badge .badge-{severity}}}"
