"""Documentation page of Nova's releases, generated from the table that render and lint use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpustack.nova_options import releases, tables
from gpustack.nova_options.options import Option, Release, of_any_release
from gpustack.nova_options.releases import Key


def markdown() -> str:
    """The page as Markdown."""
    return "\n".join(
        [
            "# Nova's releases",
            "",
            "What each release of Nova reads about PCI passthrough. `gpustack nova render` writes by this table and",
            "`gpustack nova lint` judges by it. A release is named by its number, its codename or the number of Nova's",
            "own versions: `2025.2`, `flamingo` and `32` are the same.",
            "",
            *_releases(),
            *_options(),
            *_filters(),
            *_keys("Keys of an alias", releases.keys("alias").values(), "Any other key makes all aliases invalid."),
            *_keys(
                "Keys of a device_spec",
                releases.keys("device_spec").values(),
                "Any other key is kept as a tag, in silence. A field that is missing lets every value through.",
            ),
            *_keys("Extra specs of flavors", releases.extra_specs().values(), ""),
        ]
    )


def _releases() -> Iterator[str]:
    yield from ("## Names", "", "| Nova | codename | release |", "|---|---|---|")
    for release in reversed(releases.releases()):
        yield f"| {release.major} | {release.name.capitalize()} | {release.number or '-'} |"
    yield ""


def _options() -> Iterator[str]:
    yield from ("## Options", "", "| option | releases | read by | old names | source |", "|---|---|---|---|---|")
    for option in releases.all_options():
        services = ", ".join(option.programs)
        yield (
            f"| `[{option.group}] {option.name}` | {_lifetime(option.since, option.until)} | {services}"
            f" | {_old_names(option)} | {option.source} |"
        )
    yield ""


def _old_names(option: Option) -> str:
    spans = of_any_release("placement" if "placement" in option.services else "nova")
    texts = []
    for name in option.old_names:
        last = max(span.until or 0 if span.until else 1000 for span in spans[name] if span.path == option.path)
        texts.append("`[{}] {}`".format(*name.split("/")) + (f", until {_of(last)}" if last < 1000 else ""))
    return ", ".join(texts) or "-"


def _filters() -> Iterator[str]:
    yield from (
        "## The scheduler's filters when nobody sets them",
        "",
        "PciPassthroughFilter is among them in no release.",
        "",
        "| releases | `[filter_scheduler] enabled_filters` |",
        "|---|---|",
    )
    runs: list[tuple[Release, Release, tuple[str, ...]]] = []
    for release in releases.releases():
        filters = releases.default_filters(release)
        if runs and runs[-1][2] == filters:
            runs[-1] = (runs[-1][0], release, filters)
        else:
            runs.append((release, release, filters))
    for first, last, filters in runs:
        names = str(first) if first == last else f"{first} to {last}"
        yield f"| {names} | {', '.join(filters)} |"
    yield from (
        "",
        "## The scheduler's filters",
        "",
        "nova-scheduler starts only if each filter of `enabled_filters` is in this table, or a line of",
        "`available_filters` names its class. `tools/nova-tables` makes the table from Nova's source; a test",
        "compares it with installed Nova.",
        "",
        "| filter | releases |",
        "|---|---|",
    )
    for record in tables.table("filters").records:
        yield f"| {record['name']} | {_lifetime(record['since'], record.get('until'))} |"
    yield ""


def _keys(title: str, keys: Iterable[Key], note: str) -> Iterator[str]:
    yield from (f"## {title}", "")
    if note:
        yield from (note, "")
    yield from ("| key | releases | values | needs | source |", "|---|---|---|---|---|")
    for key in keys:
        later = dict(key.values_since)
        values = [f"`{v}`" + (f" (since {_of(later[v])})" if v in later else "") for v in key.values]
        needs = "`[{}] {}`".format(*key.needs.split("/")) if key.needs else "-"
        lifetime = _lifetime(key.since, key.until)
        yield f"| `{key.name}` | {lifetime} | {', '.join(values) or '-'} | {needs} | {key.source} |"
    yield ""


def _lifetime(since: int, until: int | None) -> str:
    if until is not None:
        return f"{_of(since)} to {_of(until)}"
    return "all" if since <= releases.releases()[0].major else f"since {_of(since)}"


def _of(major: int) -> str:
    return str(releases.first_with(major))
