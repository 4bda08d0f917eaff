"""Parse GRUB's configuration and environment block, as far as they decide how the host boots."""

import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .kernel import EFIVARS, GLOBAL
from .limits import TEXT_LIMIT, VALUE_LIMIT
from .mounts import mount_of
from .reader import HostRoot

GRUB_LIMIT = 4 * 1024 * 1024
GRUB_DIRECTORIES = ("/boot/grub", "/boot/grub2")
_BLANK = re.compile(r"[ \t]+")
_GRUB_WORD = re.compile(r"""(?:[^\s{}|&$;<>'"\\]+|\\.|\$\{[^}\n]*\}|\$|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)
_GRUB_PIECE = re.compile(r"""\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"|([^'"\\]+)""", re.DOTALL)


def grub_unquoted(word: str) -> str:
    """A word of GRUB's script language without its quotes; variables are not expanded."""
    pieces = []
    for escaped, single, double, plain in _GRUB_PIECE.findall(word):
        pieces.append(escaped or single or re.sub(r'\\([\\"$])', r"\1", double) or plain)
    return "".join(pieces)


GRUB_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "!")  # a command follows them


def grub_statements(text: str) -> Iterator[Tuple[List[str], str, str]]:
    """The statements of a GRUB script: words, the text after the second word, and the terminator.

    The terminator is ``{`` (start of a block), ``}`` (end of a block), or a newline, also for ``;``; that of a comment
    is ``#``, and its text is the second item. The grammar is that of ``grub-core/script/yylex.l``: a comment starts at
    the start of a word, and each unquoted brace counts.
    """
    text = text.replace("\\\n", "")
    words: List[str] = []
    rest = position = 0
    while position < len(text):
        blank = _BLANK.match(text, position)
        if blank:
            position = blank.end()
            continue
        word = None if text[position] == "#" else _GRUB_WORD.match(text, position)
        if word:
            position = word.end()
            if words or word.group(0) not in GRUB_KEYWORDS:
                words.append(grub_unquoted(word.group(0)))
            if len(words) == 2 and not rest:
                rest = position
            continue
        character = text[position]
        if character in "#\n;{}&|":
            yield words, text[rest:position] if rest else "", character if character in "{}" else "\n"
            words, rest = [], 0
        if character == "#":
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            yield [], text[position:end], "#"
            position = end
        position += 1
    yield words, text[rest:] if rest else "", "\n"


def grub_variables(text: str) -> Dict[str, str]:
    """The variables that a ``grub.cfg`` sets to quoted values."""
    variables: Dict[str, str] = {}
    for name, value in re.findall(r'^\s*set (\w+)="([^"\n]*)"\s*$', text, re.MULTILINE):
        variables.setdefault(name.replace("default_kernelopts", "kernelopts"), value)
    return variables


def grub_environment(host: HostRoot, configuration: str, text: str) -> Dict[str, str]:
    """The variables for the options of boot entries: those that ``grub.cfg`` sets, overridden by those of ``grubenv``.

    ``grubenv`` has one line per variable, escapes backslash and newline with a backslash, and is padded with ``#``
    (``grub-core/lib/envblk.c``).
    """
    block = host.text(configuration.rpartition("/")[0] + "/grubenv", TEXT_LIMIT) or ""
    lines = re.findall(r"^(\w+)=((?:[^\\\n]|\\.)*)$", block, re.MULTILINE | re.DOTALL)
    return {**grub_variables(text), **{name: re.sub(r"\\(.)", r"\1", v, flags=re.DOTALL) for name, v in lines}}


def grub_environment_block(host: HostRoot, configuration: str, text: str) -> Dict[str, Any]:
    """The state of ``grubenv``, which stores the one-time boot entry, and the device that GRUB would write to.

    :param configuration: the path of ``grub.cfg``; ``grubenv`` is in the same directory.
    :param text: the content of ``grub.cfg``.
    """
    path = configuration.rpartition("/")[0] + "/grubenv"
    status = host.status(path)
    block = host.text(path, TEXT_LIMIT) or ""
    variables = dict(re.findall(r"^(\w+)=([^\n]*)$", block, re.MULTILINE))
    mount = mount_of(host, path)
    return {
        "path": path,
        "exists": status is not None and bool(status.st_size),
        "read": re.search(r"^\s*load_env\b", text, re.MULTILINE) is not None and "next_entry" in text,
        "saved_entry": variables.get("saved_entry") or None,
        "next_entry": variables.get("next_entry") or None,
        "filesystem": mount["filesystem"],
        "device": mount["device"],
    }


def expanded(text: str, variables: Dict[str, str]) -> str:
    """Expand GRUB's variables; an unknown variable is empty, as in GRUB."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: variables.get(m.group(1) or m.group(2), ""), text)


def grub_configuration(host: HostRoot) -> Optional[str]:
    """The path of ``grub.cfg``; on some EFI systems it is only on the EFI system partition.

    A migration to another distribution leaves the old one's directory there. The one that the firmware booted from is
    used, else the one whose ``grubenv`` is in use.
    """
    for directory in GRUB_DIRECTORIES:
        if host.exists(directory + "/grub.cfg"):
            return directory + "/grub.cfg"
    booted, linked = _booted(host), host.link("/boot/grub2/grubenv") or ""

    def rank(vendor: str) -> Tuple[bool, bool]:
        return f"\\efi\\{vendor}\\".lower().encode("utf-16-le") not in booted, f"/{vendor}/grubenv" not in linked

    paths = [f"/boot/efi/EFI/{vendor}/grub.cfg" for vendor in sorted(host.names("/boot/efi/EFI"), key=rank)]
    return next(filter(host.exists, paths), None)


def _booted(host: HostRoot) -> bytes:
    """The firmware's entry of this boot, in lower case: its device path has the boot loader's path in UTF-16."""
    current = (host.data(f"{EFIVARS}/BootCurrent-{GLOBAL}", VALUE_LIMIT) or b"")[4:6]
    entry = f"Boot{int.from_bytes(current, 'little'):04X}-{GLOBAL}"
    return (host.data(f"{EFIVARS}/{entry}", VALUE_LIMIT) or b"").lower() if current else b""
