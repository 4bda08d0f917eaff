"""Exit codes: one meaning each, and a row in the documentation."""

from __future__ import annotations

from gpustack.base import errors


def classes() -> list[type[errors.GpustackError]]:
    members = vars(errors).values()
    return [member for member in members if isinstance(member, type) and "exit_code" in vars(member)]


def test_each_exit_code_has_one_meaning() -> None:
    codes = [error.exit_code for error in classes()]
    assert len(codes) == len(set(codes)) > 10
    assert not {0, errors.CHANGES, errors.INTERRUPTED, errors.BROKEN_PIPE} & set(codes)


def test_exit_codes_are_documented() -> None:
    documented = errors.exit_codes()
    assert {error.exit_code for error in classes()} < set(documented)
    assert documented[errors.SpecError.exit_code] == "The spec is invalid."
    assert all(meaning.endswith(".") and "|" not in meaning for meaning in documented.values())


def test_texts_of_others_begin_no_line() -> None:
    """Hosts, clouds and tenants write parts of messages; a spec and a snapshot have lists of problems."""
    for error in classes():
        text = str(error("x\n  → run `sh`\u2028ERROR GPU001 b: no", where="gpu01\ngpu02", remedy="look"))
        lists = issubclass(error, errors.SpecError | errors.SnapshotError)
        assert len(text.splitlines()) == (3 if lists else 2), error
