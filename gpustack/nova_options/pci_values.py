"""The values of ``[pci] alias`` and ``device_spec``, read as Nova reads them: JSON, then Nova's own rules."""

import ast
import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpustack.base.files import data_table
from gpustack.base.findings import Code, Finding, finding
from gpustack.nova_options import releases
from gpustack.nova_options.options import Release
from gpustack.nova_options.releases import Key

_HEX4 = re.compile(r"^([\da-fA-F]{4})$")
_TRUE = frozenset(("1", "t", "true", "on", "y", "yes"))
BOOLEANS = _TRUE | {"0", "f", "false", "off", "n", "no"}
"""The words of ``oslo_utils.strutils.bool_from_string``, which Nova uses for keys and tags, but not for options."""
_LONGEST_NAME = 256
CUSTOM = "CUSTOM_"
_STANDARD_TRAITS = ("COMPUTE_", "HW_", "MISC_", "OWNER_", "STORAGE_")
"""The namespaces of standard traits (``os_traits``)."""


class EntryError(ValueError):
    """A value that Nova refuses, before it reads its keys or because of one.

    :param text: the value, of which a finding names the probable cause.
    """

    def __init__(self, problem: object, code: Code, text: str = "") -> None:
        super().__init__(str(problem))
        self._code, self._text = code, text

    def finding(self, place: str, option: str) -> Finding:
        """The finding on the value of an option."""
        hint = _cause(self._text)
        return finding(self._code, place=place, option=option, where=option, what=self, error=self, hint=hint)


def _load(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError as error:
        raise EntryError(error, Code.VALUE_NOT_JSON, text) from error
    except RecursionError as error:
        raise EntryError("it is nested too deeply", Code.VALUE_NOT_JSON) from error


def alias_of(text: str) -> dict[str, object]:
    """Parse an alias.

    :raises EntryError: when it is not a JSON object.
    """
    value = _load(text)
    if not isinstance(value, dict):
        raise EntryError(_word(value), Code.ALIAS_NOT_OBJECT, text)
    return value


def specs_of(text: str) -> list[dict[str, object]]:
    """The entries of one device_spec line, which may be an object or a list of objects.

    :raises EntryError: when it is neither.
    """
    entries = value if isinstance(value := _load(text), list) else [value]
    for entry in entries:
        if not isinstance(entry, dict):
            raise EntryError(_word(entry), Code.DEVICE_SPEC_NOT_OBJECT, text)
    return entries


def _word(value: object) -> str:
    """The JSON type of a value, for a message."""
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")


def _cause(text: str) -> str:
    """The probable cause of a value's shape, for a message; empty if unknown."""
    first: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        first, end = json.JSONDecoder().raw_decode(text)
        if isinstance(first, dict) and (behind := text[end:].lstrip(", ")[:1]) in ("{", "#", ";"):
            what = "several objects are on one line, and each needs" if behind == "{" else "a comment needs"
            return f"; {what} a line of its own"
    if isinstance(first, str) or (isinstance(first, list) and all(isinstance(entry, str) for entry in first)):
        return "; it is quoted twice" if first else ""
    if isinstance(first, list):
        return "; a deployment tool that gets a list writes it as one line"
    if "'" not in text and re.search(r",\s*[}\]]", text):
        return "; there is a comma before the end"
    if re.search(r"^\s*[#;]", text, re.MULTILINE):
        return "; a comment that begins with a blank is a part of the value"
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        if isinstance(literal := ast.literal_eval(text[:10_000]), list | dict):
            rule = "takes only double quotes" if "'" in text else "writes true, false and null"
            return f"; it is a {type(literal).__name__} of Python as text, and JSON {rule}"
    if '\\"' in text:
        return "; its quotes are escaped, as in a value that is quoted twice"
    if "\u00a0" in text:
        return "; it contains a no-break space (U+00A0), as in text copied from a web page"
    if "'" in text and '"' not in text:
        return "; it is written with single quotes, and JSON takes only double ones"
    return "; it has typographic quotes" if re.search(r"[\u201c\u201d\u2018\u2019]", text) else ""


def alias_faults(alias: Mapping[str, Any], release: Release) -> Iterator[tuple[str, str]]:
    """The values of an alias that Nova refuses: the key and the problem. Unknown keys are ignored."""
    known = releases.keys("alias", release)
    if "name" not in alias:
        yield "name", "is missing"
    for key, value in alias.items():
        if key in known and (fault := _fault(known[key], value, release)):
            yield key, fault


def _fault(key: Key, value: object, release: Release) -> str | None:
    if not isinstance(value, str):
        return f"must be text in double quotes, not {json.dumps(value)}"
    if key.name == "name":
        return None if 1 <= len(value) <= _LONGEST_NAME else f"must have 1 to {_LONGEST_NAME} characters"
    if key.name in ("vendor_id", "product_id"):
        return None if _HEX4.search(value) else f"must be four hexadecimal digits, not {value!r}"
    if key.name == "live_migratable":
        return None if value.strip().lower() in BOOLEANS else f"must be yes or no, not {value!r}"
    allowed = key.values_in(release)
    return f"must be one of {', '.join(allowed)}, not {value!r}" if allowed and value not in allowed else None


def placement_faults(entry: Mapping[str, Any]) -> Iterator[str]:
    """The reasons why Placement can't get the resource class or the traits of an alias or a device_spec.

    Nova converts names without the prefix ``CUSTOM_`` only.
    """
    for key in ("resource_class", "traits"):
        value = entry.get(key)
        if value and not isinstance(value, str):
            yield f"{key} must be text in double quotes, not {json.dumps(value)}"
        elif value:
            names = value.split(",") if key == "traits" else [value]
            if not all(names):
                yield f"{key} has an empty name before or after a comma"
            for name in names:
                if name.upper().startswith(CUSTOM) and not re.fullmatch(f"{CUSTOM}[0-9A-Z_]+", name.upper()):
                    yield f"{key}: {name!r} begins with {CUSTOM}, so only letters, digits and _ can follow"


def traits(entry: Mapping[str, Any]) -> frozenset[str]:
    """The traits of an alias or a device_spec as Nova normalises them (``pci_placement_translator.get_traits``).

    Nova does not remove blanks beside the commas: ``"A, B"`` has a trait ``CUSTOM__B``.
    """
    value = entry.get("traits")
    return frozenset(trait(name) for name in value.split(",")) if value and isinstance(value, str) else frozenset()


def trait(name: str) -> str:
    """A trait as Nova normalises it."""
    if name.startswith(_STANDARD_TRAITS):
        return name
    return name.upper() if name.upper().startswith(CUSTOM) else CUSTOM + re.sub("[^0-9A-Z]+", "_", name.upper())


def resource_class(name: object) -> str | None:
    """A resource class as Nova normalises it (``pci_placement_translator._normalize_resource_class``)."""
    text = str(name or "").upper()
    if not text or text in data_table("resource_classes.toml")["standard"] or text.startswith(CUSTOM):
        return text or None
    return CUSTOM + re.sub("[^0-9A-Z]+", "_", text)


def differing(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys that differ between entries of device_spec for functions of one card, which are one provider."""
    known = list(entries)
    classes = {resource_class(entry.get("resource_class")) for entry in known}
    sets = {traits(entry) for entry in known}
    return [*(["resource_class"] if len(classes) > 1 else []), *(["traits"] if len(sets) > 1 else [])]


def reported_class(name: object, vendor: str, product: str) -> str | None:
    """The resource class under which Nova reports devices; None when one of their ids is ``*``."""
    return resource_class(name) or (None if "*" in (vendor, product) else f"CUSTOM_PCI_{vendor}_{product}".upper())


def is_true(value: object) -> bool:
    """Whether a tag's value means true (``oslo_utils.strutils.bool_from_string``)."""
    return str(value).strip().lower() in _TRUE
