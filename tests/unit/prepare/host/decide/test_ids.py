"""Lists of ids of vfio-pci and pci-stub: the functions that the kernel's rules match."""

import pytest

from gpustack.hosts.facts.model import Function
from gpustack.prepare.host.decide.ids import Ids
from support.host_samples import function, host

BOARD = {"subsystem_vendor": "1028", "subsystem_product": "097e"}
K4200 = host(function("0000:84:00.0", ids="10de:11b4", pci_class="030000", **BOARD)).pci[0]
WITHOUT_BOARD = host(function("0000:84:00.0", ids="10de:11b4", pci_class="030000")).pci[0]


def ids(text: str) -> Ids:
    return Ids(driver="vfio_pci", text=text, place="/etc/modprobe.d/a.conf:1")


@pytest.mark.parametrize(
    ("text", "binds"),
    [
        ("10de:11b4", True),
        ('"10DE:11B4,10de:0e0a"', True),
        ("10de:ffffffff", True),
        ("ffffffff:ffffffff", True),
        ("10de", False),
        ("10de:11b5", False),
        ("1002:11b4", False),
        ("10de:11b4:1028", True),
        ("10de:11b4:1028:97e", True),
        ("10de:11b4:1028:097f", False),
        ("10de:11b4:ffffffff:ffffffff:030000:ff0000", True),
        ("10de:11b4:ffffffff:ffffffff:040300:ff0000", False),
        ("10de:11b4:ffffffff:ffffffff:040300", True),
        ("10de:11b4:x", True),
        ("", False),
    ],
)
def test_an_id_binds_what_its_fields_match(text: str, binds: bool) -> None:
    assert ids(text).binds(K4200) is binds


@pytest.mark.parametrize(("function", "all_of_them"), [(K4200, False), (WITHOUT_BOARD, False)])
def test_an_unknown_board_may_match(function: Function, all_of_them: bool) -> None:
    narrow = ids("10de:11b4:1028:0000")
    assert narrow.binds(function) is (function is WITHOUT_BOARD)
    assert narrow.takes_all([function]) is all_of_them
    assert narrow.concerns([function])


def test_a_list_takes_all_functions_of_its_pairs() -> None:
    assert ids("10de:11b4:1028:0000,10de:11b4").takes_all([K4200])
    assert ids("1002:74a1").takes_all([K4200])
    assert not ids("1002:74a1").concerns([K4200])


def test_pairs_are_padded_and_in_lower_case() -> None:
    assert ids("10DE:b4,8086:1521:1").ids == {"10de:00b4", "8086:1521"}
