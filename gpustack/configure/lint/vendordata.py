"""Checks of vendor data: a provider that reads the file, a file that is JSON, and lists that users replace."""

import contextlib
import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

import yaml

from gpustack.base.errors import NovaConfigError
from gpustack.base.files import read_text
from gpustack.base.findings import Code, Finding, finding
from gpustack.base.limited_yaml import load
from gpustack.base.text import listed
from gpustack.configure.lint.subject import LintSubject, check
from gpustack.configure.vendordata import PATH, PROVIDERS, STATIC, parts
from gpustack.nova_options.config import Setting

_TITLE = "Vendor data"
_HEAD = "#cloud-config"
_CASE = re.compile(r"^ *case \$flavor in\n *(.+)\) ;;$", re.MULTILINE)
_SHOWN = 8


@check(_TITLE)
def vendor_data(subject: LintSubject) -> Iterator[Finding]:
    """Nova reads the file for each instance; cloud-init in the guest reads its key ``cloud-init``."""
    for source in subject.sources:
        setting = source.configuration.last(PATH) if source.serves(PATH) else None
        if not setting or setting.unknown or not setting.value.strip():
            continue
        providers = source.configuration.last(PROVIDERS)
        if providers and not providers.unknown and STATIC not in map(str.strip, providers.value.split(",")):
            yield _invalid(providers, f"without {STATIC}, instances get no vendor data of {setting.value}")
        yield from _file(setting, subject.restricted)


def _invalid(setting: Setting, reason: str) -> Finding:
    return finding(Code.VENDOR_DATA_INVALID, place=setting.place, reason=reason)


def _file(setting: Setting, restricted: Collection[str]) -> Iterator[Finding]:
    """The findings about the file. It is read if it is beside the configuration: also in a copy of /etc/nova."""
    name = PurePosixPath(setting.value.strip())
    directory = Path(setting.file).parent
    if directory.name == "nova.conf.d":
        directory = directory.parent
    path = directory / name.name
    try:
        document = json.loads(read_text(path))
        texts = list(_texts(document.get("cloud-init") if isinstance(document, dict) else None))
    except FileNotFoundError:
        if directory == Path(name.parent) and name.is_absolute():
            yield _invalid(setting, f"{name} does not exist")
        return
    except OSError:
        return  # Nova's user may read it
    except (ValueError, RecursionError) as error:
        yield _invalid(setting, f"{name} is not valid JSON: {error}")
        return
    except NovaConfigError as error:
        yield _invalid(setting, f"{name}: {error.what}")
        return
    if named := sorted(name for text in texts for name in _flavors(text) if name in restricted):
        yield finding(Code.VENDOR_DATA_NAMES_FLAVORS, place=str(path), names=listed(named, _SHOWN))
    if lists := sorted(_lists(texts)):
        yield finding(Code.VENDOR_DATA_LISTS_VANISH, place=str(path), keys=", ".join(lists))


def _flavors(text: str) -> Iterator[str]:
    """The flavors in the script of ``gpustack guest vendordata``: a pattern of ``case``, quoted and escaped as JSON."""
    for pattern in _CASE.findall(text):
        words = shlex.shlex(pattern, posix=True, punctuation_chars="|")
        words.whitespace_split = True
        with contextlib.suppress(ValueError):
            yield from (json.loads(f'"{word}"') for word in words if word != "|")


def _lists(texts: Iterable[str]) -> set[str]:
    """The keys of vendor cloud-config whose values are lists."""
    keys: set[str] = set()
    for text in texts:
        try:
            config = load(text) if text.startswith(_HEAD) else None
        except yaml.YAMLError:
            continue  # cloud-init ignores the part
        if isinstance(config, dict):
            keys |= {str(key) for key, value in config.items() if isinstance(value, list)}
    return keys


def _texts(data: object) -> Iterator[str]:
    """The parts of vendor data for cloud-init: a text, a MIME multipart document, or a list of texts."""
    if isinstance(data, list):
        for entry in data:
            yield from _texts(entry)
    elif isinstance(data, str):
        if (found := parts(data)) is None:
            yield data.lstrip()
        for part in found or ():
            payload = part.get_payload(decode=True)
            yield payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
