"""Loading a spec: what is valid, every word of what is not, and that nothing else ever comes out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpustack.base.errors import SpecError
from gpustack.base.findings import Severity
from gpustack.spec.document import MAX_BYTES, MAX_DEPTH, MAX_NODES, SpecProblems
from gpustack.spec.load import Examination, examine, load_spec, parse_spec

CASES = Path(__file__).parent / "cases"
VALID = CASES / "valid-in-full.yaml"


def problems_text(examination: Examination) -> str:
    """Everything that is said of a spec, in the words of the error and one line for each warning."""
    lines = ["valid" if examination.spec else ""]
    if examination.spec is None:
        lines = [str(SpecProblems(examination.problems, where=examination.where))]
    warnings = [p for p in examination.problems if p.severity is Severity.WARNING]
    return "\n".join([*lines, *(f"warning: {problem}" for problem in warnings), ""])


@pytest.mark.parametrize("case", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_problems_of_a_spec(case: Path) -> None:
    """``GOLDEN=write pytest …`` writes the expected texts again: review the difference before committing it."""
    golden = case.with_suffix(".txt")
    text = problems_text(examine(case.read_bytes(), case.name))
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_what_a_spec_may_say() -> None:
    spec = load_spec(VALID)
    assert {name: model.match.model_dump(exclude_defaults=True) for name, model in spec.models.items()} == {
        "k4200": {"vendor": "10de", "product": "11b4"},
        "k4200-hp": {
            "vendor": "10de",
            "product": "11b4",
            "subsystem_vendor": "103c",
            "subsystem_product": "1096",
        },
        "one": {
            "vendor": "10de",
            "product": "11b4",
            "subsystem_vendor": "103c",
            "subsystem_product": "1096",
            "pci_class": "0300",
            "addresses": ("0000:88:00.0", "10000:01:00.0"),
        },
    }
    assert [model.driver for model in spec.models.values()] == ["vfio-pci", "pci-stub", "vfio-pci"]
    assert spec.hosts["*.example.org"].models == ("k4200",)
    assert spec.hosts["gpu-17.example.org"].options.allow_unsafe_interrupts
    assert (spec.options.iommu_pt, spec.options.blacklist_host_drivers) == (False, True)


def test_an_error_carries_every_problem_as_data() -> None:
    with pytest.raises(SpecProblems) as caught:
        parse_spec("version: 1\nmodels: {k4200: {match: {vendor: 10de, product: 1184}}}\nhosts: {a: [k420]}", "x")
    assert [problem.to_dict() for problem in caught.value.problems] == [
        {
            "severity": "warning",
            "path": "$.models.k4200",
            "line": 2,
            "column": 10,
            "message": "no host passes this model through",
            "suggestion": None,
        },
        {
            "severity": "error",
            "path": "$.models.k4200.match.product",
            "line": 2,
            "column": 49,
            "message": 'expected four hexadecimal digits in quotes, like "11b4", found 1184, a number in YAML: '
            "write it in quotes",
            "suggestion": '"1184"',
        },
        {
            "severity": "error",
            "path": "$.hosts.a[0]",
            "line": 3,
            "column": 13,
            "message": 'no model is called "k420"',
            "suggestion": '"k4200"',
        },
    ]
    assert caught.value.exit_code == 10


@pytest.mark.parametrize(
    ("value", "likely"),
    [
        ("1184", '"1184"'),
        ("11e4", '"11e4"'),
        ("0x11b4", '"11b4"'),
        ("0311", '"0311"'),
        ("0899", '"0899"'),
        ("0o17", None),
        ("11_84", '"1184"'),
        ("7", '"0007"'),
        ("1.1e4", None),
        ('"0x11B4"', '"11b4"'),
        ("123456789012345678901234567890123456789012345678901234567890", None),
        (".inf", None),
        ("12:30", None),
        ("2026-11-21", None),
        ("=", None),
        ("~", None),
    ],
)
def test_ids_that_yaml_does_not_leave_alone(value: str, likely: str | None) -> None:
    text = f"version: 1\nmodels: {{m: {{match: {{vendor: '10de', product: {value}}}}}}}\nhosts: {{a: [m]}}"
    problems = examine(text, "x").problems
    (problem,) = [p for p in problems if p.severity is Severity.ERROR]
    assert problem.path == "$.models.m.match.product"
    assert problem.suggestion == likely


def bomb() -> str:
    """Nine lines of YAML that stand for a thousand million values."""
    tens = (f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]" for level in range(1, 9))
    return "\n".join(["l0: &l0 [x, x, x, x, x, x, x, x, x, x]", *tens])


def chain() -> str:
    """Aliases that nest one level deeper with each line."""
    lines = ["l0: &l0 [x]"]
    return "\n".join([*lines, *(f"l{n}: &l{n} [*l{n - 1}]" for n in range(1, 5000))])


def merges() -> str:
    """Merge keys that bring four times as much with each line."""
    fours = (f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 4)}]}}" for n in range(1, 11))
    return "\n".join(["l0: &l0 {a: 1}", *fours])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(), f"more than {MAX_NODES} values"),
        (merges(), f"more than {MAX_NODES} values"),
        (chain(), f"nested more than {MAX_DEPTH} levels"),
        ("[" * (MAX_BYTES - 1), f"nested more than {MAX_DEPTH} levels"),
        ("{a: " * 200_000, f"nested more than {MAX_DEPTH} levels"),
        ("- " * 500_000, f"nested more than {MAX_DEPTH} levels"),
        ("? " * 500_000, f"nested more than {MAX_DEPTH} levels"),
        ("[" + "a," * 500_000 + "]", f"more than {MAX_NODES} values"),
        ("a: " + "x" * MAX_BYTES, "larger than 1024 KiB"),
        ("%YAML " + "1" * 10_000 + ".1\n---\na: 1", "a number here is out of range"),
        ("- &a [*a]", "an alias refers to a value that contains it"),
    ],
    ids=lambda value: None if len(value) > 60 else value,
)
def test_alias_bombs_are_refused_before_expansion(text: str, message: str) -> None:
    with pytest.raises(SpecProblems, match=message) as caught:
        parse_spec(text, "x")
    assert len(caught.value.problems) == 1


def test_a_spec_as_large_as_allowed_is_judged() -> None:
    """A thousand faults are all data; the message lists the first and counts the rest."""
    hosts = "".join(f"  gpu{number:05d}.example.org: [k420]\n" for number in range(1000))
    text = f"version: 1\nmodels: {{k4200: {{match: {{vendor: '10de', product: '11b4'}}}}}}\nhosts:\n{hosts}"
    with pytest.raises(SpecProblems, match="… and 950 more") as caught:
        parse_spec(text, "x")
    assert len([p for p in caught.value.problems if p.severity is Severity.ERROR]) == 1000
    assert len(str(caught.value).splitlines()) == 52


HEAD = "version: 1\nmodels: {m: {match: {vendor: '10de', product: '11b4'}}}\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"{HEAD}hosts: {{a: [{'~,' * 10_000}]}}", 10_001),
        (f"{HEAD}hosts: {{a: [{','.join(f'model{n}' for n in range(10_000))}]}}", 10_001),
        (HEAD + "".join(f"key{n}: 1\n" for n in range(10_000)), 10_001),
        (f"version: 1\nmodels: {{{','.join(f'm{n}: {{}}' for n in range(4_000))}}}\nhosts: {{a: [x]}}", 8_001),
    ],
    ids=["empty", "unknown-names", "unknown-keys", "models"],
)
def test_thousands_of_faults_are_reported_in_linear_time(text: str, count: int) -> None:
    """In seconds; what took the square of their number took minutes."""
    assert len(examine(text, "x").problems) == count


def test_many_models_of_one_card_are_refused_rather_than_compared() -> None:
    models = "".join(
        f"  m{n}: {{match: {{vendor: '10de', product: '11b4', subsystem_vendor: '10de', "
        f"subsystem_product: '{n:04x}'}}}}\n"
        for n in range(102)
    )
    text = f"version: 1\nmodels:\n{models}hosts: {{gpu01: [m0]}}"
    with pytest.raises(SpecProblems, match="more than 100 models share 10de:11b4") as caught:
        parse_spec(text, "x")
    assert len([p for p in caught.value.problems if p.severity is Severity.ERROR]) == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file") as caught:
        load_spec(tmp_path / "gpustack.yaml")
    assert "gpustack spec init" in str(caught.value)


def test_a_file_that_is_a_directory(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="Is a directory"):
        load_spec(tmp_path)


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(SpecProblems, match="larger than 1024 KiB"):
        load_spec(Path("/dev/zero"))


def test_a_byte_order_mark_is_no_fault() -> None:
    assert parse_spec(b"\xef\xbb\xbf" + VALID.read_bytes(), "x") == load_spec(VALID)
    assert parse_spec("\ufeff" + VALID.read_text(encoding="utf-8"), "x") == load_spec(VALID)


def is_judged(source: str | bytes) -> None:
    """A spec or problems comes out, told in characters that do no harm to a terminal."""
    examination = examine(source, "x")
    errors = [p for p in examination.problems if p.severity is Severity.ERROR]
    assert (examination.spec is None) == bool(errors)
    for problem in examination.problems:
        assert str(problem).replace("…", "").isascii()
        assert str(problem).isprintable()
        assert len(str(problem)) < 4000
        assert problem.path.startswith("$")


@given(st.text())
@example("\ud800")
@example("\x85")
@example("a: \u2028")
@example("'\\x")
@example("!<%ff> a")
@example("&")
@example("*")
@example("%TAG ! tag:example.org,2000:app/\n---\n- !x a")
def test_any_text_is_a_spec_or_a_spec_error(text: str) -> None:
    is_judged(text)


@given(st.binary())
@example(b"\xff\xfea\x00")
@example(b"\x00")
def test_any_bytes_are_a_spec_or_a_spec_error(content: bytes) -> None:
    is_judged(content)


@given(st.text(alphabet="-?:,[]{}#&*!|>'\"%@`<= \n\t\\xuU0159ae~.\u00e9", max_size=60))
@settings(max_examples=400)
def test_any_run_of_yaml_signs_is_a_spec_or_a_spec_error(text: str) -> None:
    is_judged(text)


PIECES = st.sampled_from(
    ["[", "]", "{", "}", ": ", ", ", "\n", "\n  ", "- ", "&a ", "*a", "<<: ", "!!x ", "null", "1", "0x1", "'", '"']
)


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_spec_is_a_spec_or_a_spec_error(data: st.DataObject) -> None:
    text = VALID.read_text(encoding="utf-8")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + data.draw(PIECES) + text[end:]
    is_judged(text)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["k4200", "10de", "0000:88:00.0", "vfio-pci", "full", "gpu[1:3]"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.text(max_size=6),
                st.sampled_from(["match", "vendor", "product", "addresses", "models", "options", "driver", "class"]),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("version", "models", "hosts", "options", "x"), VALUES)),
    st.booleans(),
)
@settings(max_examples=300)
def test_any_data_in_the_shape_of_a_spec_is_judged(values: dict[str, object], right_version: bool) -> None:
    import yaml

    is_judged(yaml.safe_dump(values | ({"version": 1} if right_version else {})))


def test_what_a_spec_may_say_of_flavors() -> None:
    flavors = load_spec(CASES / "flavors-in-full.yaml").flavors
    assert {name: flavor.model_dump(exclude_defaults=True) for name, flavor in flavors.items()} == {
        "g1.k4200.{count}": {
            "model": "k4200",
            "count": (1, 2, 4),
            "per_gpu": {"vcpus": 8, "ram": 32768, "disk": 40},
        },
        "one k4200": {"model": "k4200", "vcpus": 4, "ram": 8192, "disk": 0},
        "both": {
            "gpus": {"k4200": 1, "p100": 2},
            "per_gpu": {"vcpus": "auto", "ram": "auto"},
            "disk": 1024,
            "reserve": {"vcpus": 4, "ram": 16384},
            "ephemeral": 100,
            "swap": 4096,
            "id": "gpu both",
            "description": "{count} GPUs of two kinds",
            "access": ("research", "0f3a3f4b8d8e4d1d9f1c2b3a4d5e6f70"),
            "numa": {"policy": "required", "nodes": "auto"},
            "cpu_policy": "dedicated",
            "mem_page_size": "1GB",
            "maxphysaddr": "passthrough",
            "hide_hypervisor": True,
            "guest": "windows",
            "windows": True,
            "secure_boot": True,
            "tpm": True,
            "images": ("windows-11*", "155d900f-4e14-4e4c-a73d-069cbf4541e6"),
            "extra_specs": {"hw:cpu_thread_policy": "prefer", "quota:disk_total_iops_sec": "2000"},
        },
    }
