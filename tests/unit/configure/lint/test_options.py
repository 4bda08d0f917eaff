"""The names of options in existing configuration."""

from __future__ import annotations

import pytest

from gpustack.configure.lint import judged
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source
from gpustack.nova_options.config import parse_files
from gpustack.nova_options.releases import release


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ('[pci]\npassthrough_whitelist = {"vendor_id": "10de"}\n', "lines under both names add up"),
        ("[devices]\nenabled_vgpu_types = nvidia-35\n", "in one file, the new name wins"),
    ],
)
def test_a_deprecated_name_has_the_effect_of_its_option(text: str, effect: str) -> None:
    source = Source(label="compute", services=("compute",), configuration=parse_files({"nova.conf": text}), named=True)
    results = judged(LintSubject(sources=[source], release=release("2025.2")))
    (found,) = [entry for result in results for entry in result.findings if entry.code == "GPU339"]
    assert (found.remedy or "").endswith(effect)
