"""Checks: their order decides the exit code, and an error that ends some of them is one."""

from __future__ import annotations

from collections.abc import Iterator

from gpustack.base.errors import CloudError, DatabaseError
from gpustack.operate.doctor.check import Check, State, exit_code, failed, made, not_configured, ok, warning


def test_the_first_failed_check_gives_the_exit_code() -> None:
    cloud, database = failed("Cloud", CloudError("gone")), failed("Databases", DatabaseError("gone"))
    assert exit_code([ok("Python", "3"), cloud, database]) == 21
    assert exit_code([database, cloud]) == 30


def test_warnings_and_parts_without_configuration_are_no_errors() -> None:
    assert exit_code([warning("Known hosts", "none", "add"), not_configured("Cloud", "none", "set"), ok("a", "b")]) == 0


def test_an_error_ends_the_checks_of_its_part() -> None:
    def checks() -> Iterator[Check]:
        yield ok("Cloud", "signed in")
        raise CloudError("refused", where="http://nova", remedy="ask")

    first, last = made("Cloud", checks)
    assert first.state is State.OK
    assert last == Check(name="Cloud", state=State.ERROR, seen="http://nova: refused", remedy="ask", exit_code=21)


def test_programs_have_every_part_of_a_result() -> None:
    check = failed("Cloud", CloudError("refused"))
    assert check.to_dict() == {"name": "Cloud", "state": "error", "seen": "refused", "remedy": ""}
