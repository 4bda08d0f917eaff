"""Lists of processors, as Nova reads them."""

import pytest

from gpustack.nova_options.cpu_sets import CpuSpecError, cpus


def test_ranges_are_included_and_excluded() -> None:
    assert cpus("0-3,^2, 8,") == {0, 1, 3, 8}
    assert cpus("") == set()


@pytest.mark.parametrize("text", ["a", "1-", "3-1", "^x"])
def test_a_list_that_nova_refuses_is_an_error(text: str) -> None:
    with pytest.raises(CpuSpecError, match=r"processor|range"):
        cpus(text)
