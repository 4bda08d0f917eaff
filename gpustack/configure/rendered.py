"""Rendered files, and the inputs that the renderer of each kind of deployment uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpustack.base.errors import NovaConfigError
from gpustack.base.files import file_errors, read_text, templates
from gpustack.base.findings import Finding
from gpustack.configure import providers
from gpustack.configure.desired import DesiredConfig
from gpustack.configure.sections import Carried, ConfigSection, sections
from gpustack.configure.sources import PLACEMENT, Existing, Source, carried
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.markers import MARK, ended_as, without_block, without_ours
from gpustack.spec.document import entries

if TYPE_CHECKING:
    import jinja2


ENCRYPTED = "the file is encrypted"


@dataclass(frozen=True, kw_only=True)
class RenderedFile:
    """One rendered file.

    :ivar target: the host that it is for, ``control`` or ``compute`` for all hosts of that kind; empty if the
        deployment tool distributes the file.
    :ivar path: its path on the target, or below the output directory if the deployment tool distributes it.
    :ivar services: the services that read it.
    :ivar mode: the permission bits of a new file; a file that exists keeps its own.
    :ivar shared: whether the file may hold settings of others; gpustack owns only the part between the markers.
    """

    target: str
    path: str
    text: str
    services: tuple[str, ...]
    shared: bool = False
    mode: int = 0o644

    @property
    def name(self) -> str:
        """Its target, if there is one, and its path."""
        return f"{self.target}:{self.path}" if self.target else self.path

    def onto(self, before: str | None, place: str | None = None) -> str:
        """The complete new content of the file.

        :param before: its current content; None if the file does not exist.
        :param place: the file's path here, for the error.
        :raises NovaConfigError: if the markers of gpustack's block are damaged, or the file is of others.
        """
        if before is None:
            return self.text
        foreign = (without_block if self.shared else without_ours)(before, place or self.path)
        if foreign.strip() and not self.shared:
            what = "gpustack did not write this file, and would replace all of it"
            remedy = "move the file away, or give `nova render` another --out"
            raise NovaConfigError(what, where=place or self.path, remedy=remedy)
        return foreign.rstrip() + ended_as(before, f"\n\n{self.text}" if foreign.strip() else self.text)

    def to_dict(self) -> dict[str, object]:
        """The file as plain data for JSON."""
        return {"target": self.target, "path": self.path, "services": list(self.services), "text": self.text}


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """All files, and the findings about them. With an error among the findings, the files must not be written.

    :ivar unknown: errors about hosts that have no files, because facts of their GPUs are missing: what earlier
        renderings wrote for them must stay.
    :ivar others: the hosts that only the earlier content of a file of all hosts has, and whether their part stays.
    """

    files: tuple[RenderedFile, ...]
    findings: tuple[Finding, ...] = field(default=())
    unknown: tuple[Finding, ...] = ()
    others: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The inputs of one rendering.

    :ivar filters: the scheduler's complete filter list.
    :ivar services: the services of Nova to render for.
    :ivar placement: whether to render for Placement.
    :ivar hosts: the facts of the hosts by name.
    :ivar directory: the directory of the deployment tool that the files go into.
    :ivar default_filters: whether ``filters`` is derived from the release's default list.
    :ivar root: the directory below which all files are written; None when unknown.
    :ivar together: whether the compute hosts run the other services too: one file for each host.
    :ivar everywhere: whether a file for compute hosts without GPUs is rendered.
    :ivar others: the parts of hosts that are not rendered and stay in a file of all hosts.
    """

    wanted: DesiredConfig
    existing: Existing
    filters: tuple[str, ...]
    hosts: dict[str, Host]
    services: tuple[str, ...]
    directory: str
    default_filters: bool = False
    placement: bool = False
    root: Path | None = None
    together: bool = False
    everywhere: bool = True
    others: Mapping[str, Any] = field(default_factory=dict)

    def into(self, path: str) -> Path | None:
        """The path to which a file is written; None when ``root`` is unknown."""
        return self.root / path.lstrip("/") if self.root else None

    def earlier(self, name: str) -> list[dict[str, object]]:
        """The documents of a file below the tool's directory, as an earlier rendering wrote them."""
        path = self.into(f"{self.directory}/{name}")
        return documents(path) if path and path.is_file() else []

    def sections(self, services: Collection[str], host: str | None = None) -> tuple[ConfigSection, ...]:
        """All settings for services that read the same configuration, with the devices of ``host``."""
        devices = self.wanted.computes[host] if host else ()
        types = self.wanted.mediated.get(host or "", ())
        return sections(self.wanted, services, filters=self.filters, devices=devices, types=types)

    def provider_text(self, host: str) -> str | None:
        """The file of a compute host that adds to its providers in Placement; None if the host needs none."""
        return providers.text(self.wanted.markers.get(host, {}), self.wanted.traits.get(host, {}))

    def of_placement(self) -> tuple[ConfigSection, ...]:
        """The settings for Placement's own configuration; empty if it needs none."""
        return sections(self.wanted, (PLACEMENT,)) if self.placement else ()

    def of_host(self, host: str, path: str) -> tuple[ConfigSection, ...]:
        """The devices of a compute host in a file that replaces all its lines; empty if the host has none."""
        entries, types, retained = self.wanted.computes[host], self.wanted.mediated.get(host, ()), self.kept(host, path)
        return sections(self.wanted, ("compute",), devices=entries, types=types, carried=retained, parts={"devices"})

    def yaml(self, path: str, services: tuple[str, ...], text: str) -> RenderedFile:
        """A file of variables or resources below the tool's directory, with gpustack's mark."""
        marked = template("variables.yml.j2").render(mark=MARK, release=self.wanted.release, variables=text)
        return RenderedFile(target="", path=f"{self.directory}/{path}", text=marked, services=services)

    def kept(self, host: str, path: str) -> Carried:
        """The existing device_spec lines of a compute host to carry over, without those in the file itself."""
        everybody: Sequence[Host] = tuple(self.hosts.values())
        into = self.into(path)
        return carried(self.existing, self.wanted, "compute", self.hosts.get(host), everybody, into=into)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A kind of deployment. Each module of :mod:`gpustack.configure.deployment` defines one.

    :ivar files: renders the files for these compute hosts.
    :ivar places: the :meth:`pathlib.Path.glob` patterns of the files, for their directory.
    :ivar findings: what the tool merges, replaces or hides.
    :ivar sources: the settings in a YAML document that the operator names.
    :ivar parts: for a tool with one file for all hosts, the part of each host in the file of an earlier rendering.
    :ivar together: services that share a file: it has the settings of all of them.
    :ivar replaces: whether it replaces all lines of an option.
    :ivar overrides: whether it merges the files with those that are in the directory already.
    :ivar own_file: the file name of gpustack's drop-in, if a service reads one.
    :ivar own_key: the key of gpustack's ConfigMap for nova-compute.
    :ivar filter_list: whether the scheduler's list is rendered always, if the tool's own list lacks a filter, or never,
        because the tool adds filters to its list.
    :ivar filters: the filters that the tool itself makes available.
    """

    directory: str
    files: Callable[[Job, Sequence[str]], Iterable[RenderedFile]]
    places: Callable[[str], tuple[str, ...]]
    findings: Callable[[Job, Sequence[str]], Iterable[Finding]] = lambda job, names: ()
    sources: Callable[[Path, Mapping[str, Any]], Iterable[Source]] | None = None
    parts: Callable[[Job], Mapping[str, Any]] = lambda job: {}
    together: tuple[str, ...] = ()
    replaces: bool = False
    overrides: bool = False
    own_file: str | None = None
    own_key: str | None = None
    filter_list: Literal["always", "needed", "never"] = "always"
    filters: tuple[str, ...] = ()


def documents(path: Path, *, base_60: bool = False) -> list[dict[str, object]]:
    """The mappings of a YAML file, without the frame of a Kubernetes list such as the output of ``oc get``.

    :param base_60: whether 0000:17:00.4 without quotes is a number, as for Ansible; for Helm and Kubernetes it is text.
    :raises NovaConfigError: when the file can't be read or is not YAML.
    """
    import yaml

    from gpustack.base.limited_yaml import LimitedLoader, load_all, reason

    class Loader(LimitedLoader):
        """With the tags of Ansible: a secret is unknown like a template, and ``!unsafe`` is text."""

    def unsafe(loader: LimitedLoader, node: yaml.Node) -> object:
        made = getattr(loader, f"construct_{node.id}")  # type: ignore[attr-defined]
        return made(node) if isinstance(node, yaml.ScalarNode) else made(node, deep=True)

    def number(loader: LimitedLoader, node: yaml.ScalarNode) -> object:
        return node.value if ":" in node.value and not base_60 else loader.construct_yaml_float(node)

    Loader.add_constructor("tag:yaml.org,2002:float", number)
    Loader.add_constructor("!vault", lambda loader, node: "{{ vault }}")
    Loader.add_constructor("!unsafe", unsafe)
    try:
        with file_errors(NovaConfigError, "can't be read", path):
            text = read_text(path)
        if text.startswith("$ANSIBLE_VAULT"):
            raise NovaConfigError(ENCRYPTED, where=str(path), remedy="decrypt it: ansible-vault view")
        documents = load_all(text, Loader)
    except (ValueError, yaml.YAMLError) as error:
        what = f"the file is no YAML: {reason(error)}"
        raise NovaConfigError(what, where=str(path), remedy="name a YAML file") from None  # YAML's error quotes lines
    found = [document for document in documents if isinstance(document, dict)]
    inner = [item for document in found for item in _items(document) or [document]]
    return [document for document in inner if isinstance(document, dict)]


def _items(document: Mapping[str, object]) -> list[object]:
    """The resources of a Kubernetes list."""
    return entries(document, "items") if str(document.get("kind", "")).endswith("List") else []


def typed(rendered: Sequence[ConfigSection]) -> dict[str, dict[str, bool | int | str]]:
    """Single-valued settings by group and name, with the types that YAML has for them."""
    return {section.group: {line.name: typed_value(line.value) for line in section.lines} for section in rendered}


def typed_value(text: str) -> bool | int | str:
    """A value with the type that YAML has for it."""
    return int(text) if text.isdecimal() else True if text == "true" else text


def dumped(
    documents: Sequence[Mapping[str, Any]],
    style: Callable[[str], str | None] = lambda text: "|" if "\n" in text else None,
) -> str:
    """Documents as YAML.

    :param style: the style of a text; None for PyYAML's choice. By default, multi-line text is a literal block.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style(value))

    Dumper.add_representer(str, text)
    return yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=2**20, allow_unicode=True)


def template(name: str) -> jinja2.Template:
    """A template of ``templates/nova``; every value comes from the spec's patterns or is JSON."""
    options = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return templates("nova", autoescape=False, **options).get_template(name)
