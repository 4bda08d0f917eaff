"""The one door for secrets: which values of a configuration are secret, and how texts are masked.

A secret is known by its type: the options that Nova, Placement, oslo.db, oslo.messaging and keystoneauth mark as secret
(``gpustack/data/nova``), passwords in URLs, tokens, private keys, vaults. An option that no table has counts as secret.
"""

import base64
import contextlib
import fnmatch
import functools
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from gpustack.base.files import data_table
from gpustack.base.known_secrets import MASK, SHORT, any_of, forms
from gpustack.nova_options import options, tables

_MAC = 6
_SIGNS = data_table("secrets.toml")
_KINDS: Mapping[str, str] = _SIGNS["names"]
_NAMED = {
    "name": ("instance", re.compile(r"(.+) \([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\)", re.DOTALL)),
    "why": ("project", re.compile(r"\d+ GPUs? of \S+ for (.+?), .*", re.DOTALL)),
}
"""Keys of records whose texts have a name, with its kind."""
# dracut.cmdline(7): netroot=iscsi:USER:PASSWORD@
_URL = re.compile(r"(?:(?<=://)|(?<=\biscsi:))[^\s'\"<>]{1,1024}(?=@)")
_KEY = re.compile("|".join(_SIGNS["private_keys"]), re.DOTALL)
_MANIFEST, _MANIFEST_DATA = re.compile(_SIGNS["manifest"]), re.compile(_SIGNS["manifest_data"])
_VAULT = re.compile(r"\$ANSIBLE_VAULT;\S*(?:\s+[0-9a-f]{2,})*")
_TOKEN = re.compile("|".join(_SIGNS["tokens"]), re.IGNORECASE)
_ENCODED = re.compile("|".join(_SIGNS["encodings"]))
_ID = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])")  # of projects, users and machines
_ADDRESS = re.compile(r"(?<![\w.:-])(?:[0-9a-f]{0,4}:[0-9a-f:.]{1,45}|\d{1,3}(?:\.\d{1,3}){3})(?![\w:-])")


@functools.cache
def _known() -> Mapping[str, bool]:
    """By path, whether an option of Nova or Placement is secret in any release; a path can have a ``*``."""
    named = [*options.of_any_release("nova").items(), *options.of_any_release("placement").items()]
    known = {path.lower(): False for path, _of in named}
    known |= {path.lower(): True for path, of in named if any(option.secret for option in of)}
    return known | dict.fromkeys(tables.facts()["unmarked_secrets"], True)


def is_secret(path: str) -> bool:
    """Whether the value of an option may contain a secret: it is never shown.

    :param path: ``group/name``. An option that no release has is one of another program: its type is unknown.
    """
    return of_table(path) is not False


def of_table(path: str) -> bool | None:
    """Whether the tables call an option secret; None if none of them has it."""
    wanted = path.replace("-", "_").lower()
    known = _known()
    if (found := known.get(wanted)) is None and (found := known.get(path.lower())) is None:
        return next((secret for of, secret in known.items() if "*" in of and fnmatch.fnmatch(wanted, of)), None)
    return found


@functools.cache
def _keys() -> str:
    """A pattern of the ends of keys whose values are secret; ``code`` and the like mean other things in plain data."""
    names = {path.partition("/")[2] for path, secret in _known().items() if secret}
    names = names.union(_SIGNS["ends"]).difference(_SIGNS["public"])
    ends = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return rf"(?i:{ends}|{_SIGNS['other_keys']}|(?<![a-z])(?:{'|'.join(_SIGNS['keys'])}))"


@functools.lru_cache(maxsize=4096)
def _is_key(key: str) -> bool:
    return re.search(rf"{_keys()}\d{{0,2}}$", key) is not None


@functools.cache
def _assignment() -> re.Pattern[str]:
    forms = "|".join(_SIGNS["values"])
    before = "|".join(_SIGNS["before"]).replace("<>", r"(?:\\\n|[^\n|;]){0,200}?")
    option = rf"(?<![\w-])--?[a-z-]{{0,64}}?{_keys()}\s+"
    key = rf"{_keys()}\d{{0,2}}\\?['\"]?(?:{'|'.join(_SIGNS['signs'])})|{option}|{before}"
    return re.compile(rf"(?P<key>(?:{key}){_SIGNS['prefix']}){_SIGNS['unless']}(?P<secret>{forms})")


@functools.cache
def _words() -> frozenset[str]:
    """Words that are no secret although somebody chose them as one: masked everywhere, they would be guessed."""
    parts = {part for path in _known() for part in (path, *re.split(r"[/_]", path))}
    return frozenset(parts | {"admin", "openstack", "true", "false", "none", "null", "root", "gpustack"})


class Masking:
    """Masks the secrets in the texts of one archive, and replaces names by pseudonyms.

    A secret that one text shows by its type is masked in all others too: :meth:`learn` all data before.

    :param keep_names: whether names, serial numbers and network addresses stay.
    :ivar count: the number of masked values so far.
    :ivar patterns: the learned secrets, and the learned names.
    """

    def __init__(self, *, keep_names: bool = False) -> None:
        self.keep_names = keep_names
        self.count = 0
        self.patterns = (any_of(()), any_of(()))
        self.pseudonyms: dict[str, str] = {}
        self._secrets: set[str] = set()
        self._numbers: Counter[str] = Counter()
        self._clean: set[str] = set()

    def learn(self, data: Any) -> None:  # noqa: ANN401 - plain data
        """Learn the secrets and names of plain data; the maskers know them afterwards."""
        self.data(data)
        self._clean.clear()
        names = {name for name in self.pseudonyms if re.search(r"\D.|.\D", name) and name.lower() not in _words()}
        self.patterns = (any_of(self._secrets), any_of(names, 2))

    def secret(self, *values: str) -> str:
        """Learn the secrets of a masked text, and return the mask."""
        self.count += 1
        for text in {*values, *map(unquote, values)} - {MASK}:
            if len(text) >= SHORT and text.lower() not in _words():
                self._secrets |= forms(text)
        return MASK

    def name(self, kind: str, value: str) -> str:
        """Learn a name, and return its pseudonym, which is the same in the whole archive."""
        if self.keep_names or not value or re.fullmatch(rf"{kind}-\d+", value):
            return value
        if value not in self.pseudonyms:
            self._numbers[kind] += 1
            self.pseudonyms[value] = f"{kind}-{self._numbers[kind]}"
        return self.pseudonyms[value]

    def option(self, path: str, value: str) -> str:
        """The value of an option as it may be shown: an unknown one is learned only if it looks like a secret."""
        if not is_secret(path):
            kind = _KINDS.get(path.partition("/")[2])
            return self.name(kind, value) if kind else value
        found = _URL.search(value)
        is_typed = path.lower() in _known() or re.fullmatch(r"(?=.*\d)(?=.*[A-Za-z])[^\s/.]{8,}", value)
        return self.secret(*(_passwords(found.group()) if found else [value] if is_typed else []))

    def text(self, text: str) -> str:
        """A text without secrets and, unless names are kept, without names."""
        if text in self._clean:  # facts repeat most texts
            return text
        masked = text
        for masker in MASKERS.values():
            masked = masker(self, masked)
        if masked == text:
            self._clean.add(text)
        return masked

    def data(self, value: Any, key: str = "") -> Any:  # noqa: ANN401 - plain data
        """Plain data without secrets and names.

        :param key: the key of the value.
        """
        if isinstance(value, Mapping):
            named = functools.partial(self.name, "project") if key == "projects" else self.text
            above = _is_key(key)  # {"password": {"value": …}}
            return {named(str(name)): self.data(inner, key if above else str(name)) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(inner, key) for inner in value]
        if value in (None, "") or isinstance(value, bool):
            return value
        if _is_key(key) and re.match(_SIGNS["unless"], str(value)):
            return self.secret(str(value))
        if isinstance(value, str):
            if key in _NAMED and (found := _NAMED[key][1].fullmatch(value)):
                value = value[: found.start(1)] + self.name(_NAMED[key][0], found[1]) + value[found.end(1) :]
            return self.name(_KINDS[key], value) if key in _KINDS else self.text(value)
        return value


def _passwords(users: str) -> list[str]:
    """The passwords in a URL before its last ``@``: it can have several hosts, each with a user."""
    return [users.partition(":")[2].partition("@")[0], *re.findall(r":([^@,/:]+)(?=[@:])", f"{users}@")]


def _assignments(masking: Masking, text: str) -> str:
    def masked(found: re.Match[str]) -> str:
        value = found["secret"].strip("'\"\\")
        words = [*map(str.strip, value.splitlines()), re.split("[,;)&<]", value)[0]]
        plain = re.fullmatch("[a-z]*", value)  # a word of a sentence: "the password: check it"
        return found["key"] + masking.secret(*([] if plain else words))

    return _assignment().sub(masked, text)


def _encoded(masking: Masking, text: str) -> str:
    def masked(found: re.Match[str]) -> str:
        patterns = (_KEY, _VAULT, _MANIFEST, _URL, _TOKEN, _assignment(), masking.patterns[0])
        inner = _decoded(found.group())
        return masking.secret() if any(pattern.search(inner) for pattern in patterns) else found.group()

    return _ENCODED.sub(masked, text)


def _decoded(word: str) -> str:
    """The text of a word in percent-encoding, or of lines in base64; empty if it is neither."""
    if "%" in word:
        return unquote(word)
    plain = "".join(word.split()).rstrip("=").replace("-", "+").replace("_", "/")
    with contextlib.suppress(ValueError):
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    return ""


def _addresses(masking: Masking, text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        written = found.group()
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(written)
            return written if address.is_loopback or address.is_unspecified else masking.name("address", written)
        return masking.name("address", written) if len(written.split(":")) == _MAC else written

    return _ADDRESS.sub(replaced, text)


def _by(pattern: Callable[[Masking], re.Pattern[str]]) -> Callable[[Masking, str], str]:
    """A masker that replaces all of a pattern; what it finds is not learned."""
    return lambda masking, text: pattern(masking).sub(lambda _found: masking.secret(), text)


MASKERS: dict[str, Callable[[Masking, str], str]] = {
    "private keys": _by(lambda _: _KEY),
    "vaults": _by(lambda _: _VAULT),
    "Kubernetes Secrets": lambda masking, text: (
        _MANIFEST_DATA.sub(lambda found: found[1] + masking.secret(), text) if _MANIFEST.search(text) else text
    ),
    "URLs": lambda masking, text: _URL.sub(lambda found: masking.secret(*_passwords(found.group())), text),
    "tokens": _by(lambda _: _TOKEN),
    "assignments": _assignments,
    "learned secrets": _by(lambda masking: masking.patterns[0]),
    "encoded secrets": _encoded,
    "addresses": _addresses,
    "ids": lambda masking, text: _ID.sub(lambda found: masking.name("id", found.group()), text),
    "names": lambda masking, text: masking.patterns[1].sub(lambda found: masking.pseudonyms[found.group()], text),
}
"""What masks a text, in this order."""
