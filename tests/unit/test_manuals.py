"""share/ and the table of commands are those of the parsers; bash takes the completion, and groff the pages."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def manuals() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("manuals", str(TOP / "tools" / "manuals"))
    spec = importlib.util.spec_from_loader("manuals", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_files_are_those_of_the_parsers(manuals: ModuleType) -> None:
    expected = manuals.rendered()
    files = [path for path in TOP.glob("share/**/*") if path.is_file()]
    present = {path.relative_to(TOP): path.read_text(encoding="utf-8") for path in (*files, TOP / manuals.TABLE)}
    stale = sorted(str(path) for path in {*expected, *present} if expected.get(path) != present.get(path))
    assert not stale, f"run .venv/bin/python tools/manuals: {', '.join(stale)}"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["gpustack", "cl"], {"cleanup", "cloud"}),
        (["gpustack", "cleanup", "p"], {"plan"}),
        (["gpustack", "host", "plan", "--sn"], {"--snapshot"}),
        (["gpustack", "explain", "--h"], {"--help"}),
        (["gpustack", "undo", "--un"], set()),  # --unless-confirmed is for gpustack itself
    ],
)
def test_bash_completes_commands_and_options(line: list[str], offered: set[str]) -> None:
    """The function of bash-completion that splits the line is a stand-in."""
    script = """
    _get_comp_words_by_ref() { words=("${LINE[@]}"); cur=${LINE[-1]}; }
    LINE=("${@:2}"); source "$1"; _gpustack; printf '%s\\n' "${COMPREPLY[@]}"
    """
    file = str(TOP / "share/bash-completion/completions/gpustack")
    ran = subprocess.run(["bash", "-c", script, "bash", file, *line], capture_output=True, text=True, check=True)
    assert (set(ran.stdout.split()), ran.stderr) == (offered, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpustack cle", {"cleanup"}),
        ("gpustack nova ", {"lint", "options", "render"}),
        ("gpustack host plan --sn", {"--snapshot"}),
        ("gpustack nova options --service com", {"compute"}),
        ("gpustack scan --root x --loc", {"--local"}),
    ],
)
def test_fish_completes_commands_options_and_values(line: str, offered: set[str]) -> None:
    file = TOP / "share/fish/vendor_completions.d/gpustack.fish"
    script = f"source '{file}'; complete -C '{line}'"
    ran = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True)
    found = {row.partition("\t")[0] for row in ran.stdout.splitlines()}
    typed = line.rpartition(" ")[2]  # fish 4 offers texts that contain its letters too
    assert ({name for name in found if name.startswith(typed)}, ran.stderr) == (offered, "")


ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
typed() { zpty -w -n shell "$1" }
answered() {
  local out all
  repeat 200 { zpty -r -t shell out && all+=$out; [[ $all == *${~1}* ]] && return; sleep 0.05 }
  print -r -- "$all"
  exit 1
}
typed "PS1= RPS1=; fpath=(${(q)1} \$fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy"$'\n'
answered ready
typed $'gpustack nov\tli\t--services --rel\t'
answered 'nova*lint*--services*--release'
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_commands_and_options() -> None:
    directory = str(TOP / "share/zsh/site-functions")
    ran = subprocess.run(
        ["zsh", "-f", "-c", ZSH, "zsh", directory], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_complain_about() -> None:
    pages = sorted((TOP / "share/man/man1").glob("*.1"))
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, pages)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
