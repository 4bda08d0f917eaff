"""GRUB's defaults: evaluated as a shell does (compared with the real one), or not at all."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpustack.linux.grub import DEFAULTS, LINUX, LINUX_DEFAULT, Defaults, Unevaluated, paths, read_defaults

DEBIAN = """\
# If you change this file, run 'update-grub' afterwards to update
GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX=""
"""
UBUNTU = """\
GRUB_DISTRIBUTOR=`( . /etc/os-release; echo ${NAME:-Ubuntu} ) 2>/dev/null || echo Ubuntu`
GRUB_CMDLINE_LINUX_DEFAULT='quiet splash'
GRUB_CMDLINE_LINUX="console=tty0 root=UUID=12-34"
"""


def drop_in(name: str) -> str:
    return f"/etc/default/grub.d/{name}"


def places(defaults: Defaults, *names: str) -> list[tuple[str, str]] | None:
    settings = defaults.arguments(*names)
    return None if settings is None else [(s.argument.text, s.place) for s in settings]


def test_a_distribution_s_file_is_evaluated_although_it_runs_a_command() -> None:
    defaults = read_defaults({DEFAULTS: DEBIAN})
    assert defaults.text(LINUX_DEFAULT) == "quiet"
    assert defaults.text(LINUX) == ""
    assert [str(u) for u in defaults.unevaluated] == ["/etc/default/grub:4: a command substitution"]
    assert defaults.text("GRUB_DISTRIBUTOR") is None
    assert defaults.unknown(LINUX, LINUX_DEFAULT) == ()


def test_single_quotes_and_values_with_equals_signs() -> None:
    defaults = read_defaults({DEFAULTS: UBUNTU})
    assert places(defaults, LINUX, LINUX_DEFAULT) == [
        ("console=tty0", "/etc/default/grub:3"),
        ("root=UUID=12-34", "/etc/default/grub:3"),
        ("quiet", "/etc/default/grub:2"),
        ("splash", "/etc/default/grub:2"),
    ]
    assert defaults.line(LINUX, LINUX_DEFAULT).text == "console=tty0 root=UUID=12-34 quiet splash"  # type: ignore[union-attr]


def test_drop_ins_come_after_in_the_order_of_their_names_and_keep_the_sources() -> None:
    files = {
        drop_in("90-b.cfg"): '# two\nGRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT intel_iommu=on"\n',
        drop_in("50-a.cfg"): 'GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT} crashkernel=1G-:256M"\n',
        drop_in("99-c.cfg.disabled"): "GRUB_CMDLINE_LINUX_DEFAULT=no\n",
        drop_in(".hidden.cfg"): "GRUB_CMDLINE_LINUX_DEFAULT=no\n",
        "/etc/other.cfg": "GRUB_CMDLINE_LINUX_DEFAULT=no\n",
        DEFAULTS: DEBIAN,
    }
    assert paths(files) == (DEFAULTS, drop_in("50-a.cfg"), drop_in("90-b.cfg"))
    assert places(read_defaults(files), LINUX_DEFAULT) == [
        ("quiet", "/etc/default/grub:5"),
        ("crashkernel=1G-:256M", "/etc/default/grub.d/50-a.cfg:1"),
        ("intel_iommu=on", "/etc/default/grub.d/90-b.cfg:2"),
    ]


def test_line_continuations_comments_and_export() -> None:
    text = 'export GRUB_CMDLINE_LINUX="a=1 \\\n  b=2"  # not c=3\nGRUB_CMDLINE_LINUX_DEFAULT=quiet#x;GRUB_X=y\n'
    defaults = read_defaults({DEFAULTS: text})
    assert places(defaults, LINUX) == [("a=1", f"{DEFAULTS}:1"), ("b=2", f"{DEFAULTS}:2")]
    assert defaults.text(LINUX_DEFAULT) == "quiet#x"
    assert defaults.text("GRUB_X") == "y"


def test_a_later_assignment_that_is_known_heals_an_unknown_one() -> None:
    defaults = read_defaults({DEFAULTS: f"{LINUX}=$(cat /x)\n", drop_in("1.cfg"): f"{LINUX}=ro\n"})
    assert defaults.text(LINUX) == "ro"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (f'{LINUX}="$(cat /proc/cmdline)"', 1, "a command or arithmetic substitution"),
        (f"{LINUX}=`cat /proc/cmdline`", 1, "a command substitution"),
        (f'\n{LINUX}="${{{LINUX}#quiet}}"', 2, "a parameter expansion with an operator"),
        (f'{LINUX}="$HOME"', 1, "$HOME, which no file sets"),
        (f"{LINUX}=~/x", 1, "a home directory"),
        (f"if [ -e /x ]; then\n  {LINUX}=a\nfi", 1, "commands that depend on the running host"),
        (f"case x in\n x) {LINUX}=a ;;\nesac", 1, "commands that depend on the running host"),
        (f"[ -e /x ] && {LINUX}=a", 1, "commands that depend on the running host"),
        (f"[ -e /x ] &&\n  {LINUX}=a", 1, "commands that depend on the running host"),
        (". /etc/default/other", 1, "the command ."),
        ('eval "$x"', 1, "the command eval"),
        (f'{LINUX}+=" a"', 1, "+=, which sh does not have: update-grub fails here"),
        (f"{LINUX}='a", 1, "a single quote that is never closed"),
        ("cat <<EOF\nEOF", 1, "a here-document"),
        (f"f() {{\n {LINUX}=a\n}}", 1, "commands that depend on the running host"),
        (f"{LINUX}=a true", 1, f"the command {LINUX}=a"),
        (f"{LINUX}=a\0", 1, "a NUL byte"),
    ],
)
def test_what_only_a_running_shell_can_tell_is_reported_and_not_guessed(text: str, line: int, why: str) -> None:
    defaults = read_defaults({DEFAULTS: text + "\n"})
    assert defaults.text(LINUX) is None
    assert defaults.arguments(LINUX) is None
    (reason,) = defaults.unknown(LINUX)
    assert (reason.file, reason.line, reason.why) == (DEFAULTS, line, why)


def test_a_condition_only_touches_what_it_sets() -> None:
    text = f"{LINUX}=ro\nif [ -e /x ]; then\n  GRUB_TIMEOUT=1\nelse\n  GRUB_TIMEOUT=2\nfi\n{LINUX_DEFAULT}=quiet\n"
    defaults = read_defaults({DEFAULTS: text})
    assert (defaults.text(LINUX), defaults.text(LINUX_DEFAULT)) == ("ro", "quiet")
    assert defaults.text("GRUB_TIMEOUT") is None


def test_a_byte_order_mark_ends_the_shell_as_in_grub_mkconfig(tmp_path: Path) -> None:
    text = "\ufeffGRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX=quiet\n"
    (tmp_path / "grub").write_text(text, encoding="utf-8")
    shell = ["sh", "-c", f"set -e; . {tmp_path}/grub; echo arrived"]
    assert "arrived" not in subprocess.run(shell, check=False, capture_output=True, text=True).stdout
    for files in (
        {DEFAULTS: text},
        {DEFAULTS: "", drop_in("50-cloud.cfg"): text, drop_in("60.cfg"): f"{LINUX}=\n"},
    ):
        (reason,) = read_defaults(files).unknown(LINUX)
        assert (reason.line, reason.why.partition(",")[0]) == (1, "a byte order mark")


def test_doubling_a_variable_on_every_line_ends_in_an_error_not_in_memory() -> None:
    text = f"{LINUX}=x\n" + f"{LINUX}=${LINUX}${LINUX}\n" * 5000
    assert isinstance(read_defaults({DEFAULTS: text}).value(LINUX), Unevaluated)


def test_nothing_set_is_empty() -> None:
    assert read_defaults({}).text(LINUX) == ""


NAMES = st.sampled_from([LINUX, LINUX_DEFAULT, "GRUB_X", "GRUB_Y"])
FRAGMENTS = st.one_of(
    st.sampled_from(["quiet", "a=b=c", "iommu=pt", "'x y'", '"p  q"', "\\ ", "\\$", '"\\$"', '"\\a"', "''", '""']),
    st.sampled_from(["\\\n", "#", "a#b", '"\'"', "'\"'", "\\\\", "'a\nb'", '"a\nb"', "$", '"$ "', "~", ":~", "é"]),
    NAMES.map("${}".format),
    NAMES.map(lambda name: f'"${{{name}}}"'),
    NAMES.map(lambda name: f'"${name} more=1"'),
    st.tuples(NAMES, st.sampled_from(["-", "+", ":-", ":+"]), NAMES).map(lambda t: f'"${{{t[0]}{t[1]}${t[2]} b}}"'),
    st.tuples(NAMES, st.sampled_from([":-a", ":+${GRUB_X:-c d}", ":+~", "+ x"])).map(lambda t: f"${{{t[0]}{t[1]}}}"),
    st.sampled_from(
        ["${GRUB_X:+'}'}", '"${GRUB_X:-"a b"}"', "${GRUB_X:-\\}}", '"${GRUB_X:+`echo }`}"', "${GRUB_X:=y}"]
    ),
)
VALUES = st.lists(FRAGMENTS, max_size=5).map("".join)
LINES = st.one_of(
    st.tuples(NAMES, VALUES).map(lambda pair: f"{pair[0]}={pair[1]}"),
    st.tuples(NAMES, VALUES).map(lambda pair: f"export {pair[0]}={pair[1]}"),
    st.tuples(NAMES, VALUES).map(lambda pair: f"if true; then {pair[0]}={pair[1]}; fi"),
    st.tuples(NAMES, VALUES).map(lambda pair: f"false || {pair[0]}={pair[1]}"),
    NAMES.map("unset {}".format),
    NAMES.map("{}=1; true".format),
    st.sampled_from(["", "# a comment \\", "true", "GRUB_X=$(echo hi)", "GRUB_Y=`echo '`'`", "  ", "GRUB_X=1 true"]),
)
SCRIPTS = st.lists(LINES, max_size=6).map("\n".join)


@settings(max_examples=150, deadline=None)
@given(files=st.lists(SCRIPTS, min_size=1, max_size=3))
@example(files=["GRUB_X=a\\"])
@example(files=['GRUB_CMDLINE_LINUX="a\\\nb"#c'])
@example(files=["{ GRUB_X=1; }; GRUB_Y=2"])
@example(files=["GRUB_X=\\"])
def test_what_is_known_is_what_the_real_shell_says(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    compare("sh", files, tmp_path_factory.mktemp("grub"))


def test_lines_of_edpm_and_tuned_are_evaluated(tmp_path: Path) -> None:
    edpm = f'{LINUX}="quiet"\nGRUB_Y=" iommu=pt "\n{LINUX}="${{{LINUX}:+${LINUX} }}${{GRUB_Y}}"\n'
    tuned = f'{LINUX_DEFAULT}="${{{LINUX_DEFAULT}:+${LINUX_DEFAULT} }}\\$tuned_params"\n'
    values = compare("sh", [edpm + tuned, tuned], tmp_path)
    assert values[LINUX] == "quiet  iommu=pt "
    assert values[LINUX_DEFAULT] == "$tuned_params $tuned_params"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_with_bash_as_sh_appending_is_known(tmp_path: Path) -> None:
    files = [f'{LINUX}="a"\n{LINUX}+=" b"\n', f"{LINUX}+=c"]
    values = compare("bash", files, tmp_path)
    assert values[LINUX] == "a bc"


def compare(interpreter: str, files: list[str], directory: Path) -> dict[str, str]:
    """Check the evaluation against a real shell; returns what is known."""
    scripts = {DEFAULTS: files[0]} | {drop_in(f"{i:02}.cfg"): text for i, text in enumerate(files[1:])}
    defaults = read_defaults(scripts, bash=interpreter == "bash")
    names = (LINUX, LINUX_DEFAULT, "GRUB_X", "GRUB_Y")
    commands = []
    for number, text in enumerate(scripts.values()):
        (directory / str(number)).write_text(text, encoding="utf-8")
        commands.append(f". {directory}/{number}")
    show = 'printf "%s\\0" ' + " ".join(f'"${name}"' for name in names)
    ran = subprocess.run(
        [interpreter, "-ec", "\n".join([*commands, show])],
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"},
        check=False,
    )
    values = {name: text for name in names if (text := defaults.text(name)) is not None}
    if ran.returncode == 0:
        printed = dict(zip(names, ran.stdout.decode().split("\0"), strict=False))
        assert values == {name: printed[name] for name in values}
    return values
