"""The application: start-up, help, exit codes, unknown commands, interruptions."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest

from gpustack import __version__
from gpustack.base import text
from gpustack.base.errors import GpustackError, SpecError
from gpustack.base.findings import Finding, Severity, report_lines
from gpustack.base.known_secrets import hidden
from gpustack.cli import app, common
from gpustack.cli.app import Gpustack
from gpustack.cli.registry import JOBS
from support.sysroot import SysRoot

HEAVY = ("pydantic", "yaml", "jinja2", "paramiko", "openstack", "novaclient", "sqlalchemy", "ansible", "rich", "cmd2")


def test_a_user_without_home_has_that_of_containers(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "")  # it is restored, also where it is missing
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert app.main(["example", "list"]) == 0
    assert os.environ["HOME"] == "/"


def test_commands_load_with_the_lowest_cliff():
    """cliff before 4.13 has no ``EntryPointT``, and before 4.9 no generic ``FormattableColumn``."""
    script = (
        "import cliff.app, cliff.columns, cliff.commandmanager, cliff.lister, cliff.show\n"
        "import cliff.formatters.commaseparated, cliff.formatters.table\n"
        "cliff.columns.FormattableColumn = type('FormattableColumn', (), {})\n"
        "vars(cliff.commandmanager).pop('EntryPointT', None)\n"
        "from gpustack.cli.app import main; raise SystemExit(main(['gpu', 'list', '--help']))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_start_up_loads_nothing_heavy(argument):
    """Both are run often, and by completion: heavy imports belong into the commands that need them."""
    script = (
        "import sys; from gpustack.cli.app import main; code = main(sys.argv[1:])\n"
        f"print(*sorted(set(sys.modules) & {set(HEAVY)!r}), file=sys.stderr); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, argument], capture_output=True, text=True, check=True, timeout=180
    )
    assert ran.stdout
    assert ran.stderr.strip() == ""


LOADED = {
    "gpu list": {"openstack", "pydantic", "yaml"},
    "why flavor g1 --spec {spec}": {"openstack", "pydantic", "yaml"},
    "why instance vm1 --spec {spec}": {"openstack", "pydantic", "yaml"},
    "flavor plan {spec}": {"openstack", "pydantic", "yaml"},
    "spec check {spec}": {"pydantic", "yaml"},
    "scan --root {root}": {"pydantic"},
}
"""The third-party packages of :data:`HEAVY` that commands may load up to their first request, or for ``Next:``."""


@pytest.mark.parametrize("command", LOADED)
def test_commands_load_no_other_packages(command, tmp_path):
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(
        "version: 1\nmodels: {k: {match: {vendor: '10de', product: 11b4}}}\n"
        "hosts: {gpu1: [k]}\nnova: {release: '2025.2'}\n"
    )
    root = SysRoot(tmp_path / "root").host().write("/sys/firmware/acpi/tables/FACP", "")
    root.function("0000:41:00.0", vendor="10de", product="11b4")
    script = (
        "import sys; from gpustack.cli.app import main; main(sys.argv[1:])\n"
        f"print('loaded', *sorted(set(sys.modules) & {set(HEAVY)!r}))"
    )
    names = ("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME", "OS_USER_DOMAIN_NAME", "OS_PROJECT_DOMAIN_NAME")
    ran = subprocess.run(
        [sys.executable, "-c", script, *command.format(spec=spec, root=root.path).split()],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
        env={**os.environ, **dict.fromkeys(names, "x"), "OS_AUTH_URL": "http://127.0.0.1:9/v3"},
    )
    assert set(ran.stdout.splitlines()[-1].split()[1:]) == LOADED[command], ran.stderr


def test_the_guard_would_see_a_heavy_import():
    code = f"import sys, yaml; print(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "yaml"


def test_version(gpustack):
    assert gpustack("--version") == type(gpustack("--version"))(0, f"gpustack {__version__}\n", "")


def test_help_lists_every_command(gpustack):
    ran = gpustack("--help")
    assert ran.code == 0
    names = [entry.name.replace("_", " ") for entry in entry_points(group="gpustack.cli")]
    assert "scan" in names
    for name in names:
        assert f"\n  {name}  " in ran.out


@pytest.mark.parametrize("name", [entry.name for entry in entry_points(group="gpustack.cli")])
def test_every_command_has_help(name, gpustack):
    ran = gpustack(*name.split("_"), "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: gpustack {name.replace('_', ' ')} ")


def test_the_word_help(gpustack):
    assert gpustack("help") == gpustack("--help")
    assert gpustack("help", "scan") == gpustack("scan", "--help")
    ran = gpustack("help", "scann")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean 'gpustack scan'?" in ran.err


def test_a_group_lists_its_commands(gpustack):
    ran = gpustack("help", "cleanup")
    assert ran.code == 0
    assert ran.out.startswith("usage: gpustack cleanup <action>")
    assert "\n  cleanup plan        check `pci_devices`" in ran.out
    assert "host plan" not in ran.out
    assert gpustack("cleanup", "--help") == ran
    alone = gpustack("cleanup")
    assert (alone.code, alone.out) == (2, ran.out)


def test_commands_are_listed_by_job(gpustack):
    listed = gpustack("--help").out
    jobs = [listed.index(f"\n{job}:\n") for job in JOBS]
    assert jobs == sorted(jobs)
    assert listed.index("\n  host apply ") < listed.index("\nConfigure Nova:\n  nova lint ")
    assert "Other commands" not in listed


def test_examples_have_a_line_each(gpustack):
    lines = gpustack("host", "plan", "--help").out.splitlines()
    start = lines.index("examples:")
    assert len(lines) - start > 2
    assert all(line.startswith("  gpustack host plan ") for line in lines[start + 1 :])


@pytest.mark.parametrize("name", [entry.name for entry in entry_points(group="gpustack.cli")])
def test_examples_are_command_lines(name):
    """An example with prose between two commands could not be pasted."""
    program = Gpustack()
    for line in program.parser_of(name.replace("_", " ")).epilog.splitlines()[1:]:
        for command in line.split(" | "):
            if command.strip().startswith("gpustack "):
                _, found, arguments = program.commands.find_command(shlex.split(command)[1:])
                program.parser_of(found).parse_args(arguments)
                assert "gpustack" not in arguments


@pytest.mark.parametrize(
    ("command", "equivalent"),
    [
        (("host", "apply", "s.yaml", "--sudo"), "-K"),
        (("host", "apply", "s.yaml", "--identity=key"), "--private-key"),
        (("scan", "--private-key", "key"), "--identity"),
        (("scan", "--forks", "3"), "--jobs"),
        (("scan", "-K"), "--sudo"),
        (("flavor", "plan", "s.yaml", "--cloud", "c"), "--os-cloud"),
        (("flavor", "plan", "--spec", "s.yaml"), "SPEC"),
        (("scan", "--host", "gpu01"), "HOST"),
        (("gpu", "list", "--hosts", "gpu01"), "--host"),
        (("cloud", "plan", "s.yaml", "--output", "json"), "--format or --out"),
    ],
)
def test_an_unknown_option_names_its_equivalent(gpustack, command, equivalent):
    ran = gpustack(*command)
    assert ran.code == 2
    assert f"\n  → this command has {equivalent} instead of -" in ran.err


def test_every_command_that_asks_has_the_short_option() -> None:
    asking = 0
    for entry in entry_points(group="gpustack.cli"):
        options = Gpustack().parser_of(entry.name.replace("_", " "))._option_string_actions
        if "--yes" in options:
            assert options["-y"] is options["--yes"], entry.name
            asking += 1
    assert asking > 10


def test_optional_arguments_are_not_required(gpustack):
    ran = gpustack("host", "plan")
    assert ran.code == 2
    assert ran.err.endswith("the following arguments are required: SPEC\n")


def test_nothing_prints_the_help_and_is_a_usage_error(gpustack):
    ran = gpustack()
    assert ran.code == 2
    assert ran.out == gpustack("--help").out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["scann"], "'scann' is not a gpustack command\n  → did you mean 'gpustack scan'?"),
        (["hots", "plan"], "did you mean 'gpustack host plan'"),
        (["init"], "did you mean 'gpustack spec init'?"),
        (["check", "spec"], "or 'gpustack spec check'?"),
        (["xyzzy"], "gpustack --help lists the commands"),
        (["--colour"], "--colour is not an option of gpustack"),
        (
            ["--os-cloud", "admin", "flavor", "list"],
            "--os-cloud is not an option of gpustack\n  → options of a command",
        ),
        (["sc\x1b[2Jan"], "'sc\\x1b[2Jan' is not a gpustack command"),
    ],
)
def test_unknown_commands(argv, message, gpustack):
    ran = gpustack(*argv)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_commands_can_be_abbreviated(gpustack):
    assert gpustack("play", "pa", "--help").out.startswith("usage: gpustack play pa")


class Failing(common.Command):
    """Raise what the test wants raised."""

    error: BaseException

    def take_action(self, parsed_args):
        raise self.error


@pytest.fixture
def failing(gpustack, monkeypatch):
    """Run a command that raises ``error``."""
    load = app.Commands.load_commands

    def with_fail(self, namespace):
        load(self, namespace)
        self.add_command("fail", Failing)

    monkeypatch.setattr(app.Commands, "load_commands", with_fail)

    def run(error, *options):
        monkeypatch.setattr(Failing, "error", error, raising=False)
        return gpustack(*options, "fail")

    return run


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            SpecError("it is wrong", where="gpustack.yaml", remedy="mend it"),
            10,
            "gpustack.yaml: it is wrong\n  → mend it",
        ),
        (GpustackError("\x1b[2J"), 1, "\\x1b[2J"),
        (FileNotFoundError(2, "Gone", "/x"), 1, "/x: Gone\n  → check the path"),
        (
            KeyError("slot"),
            1,
            "unexpected KeyError: 'slot'\n  → report this fault of gpustack, with the output of --debug",
        ),
        (KeyboardInterrupt(), 130, None),
    ],
)
def test_exit_codes(error, code, message, failing):
    ran = failing(error)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err == (f"gpustack: {message}\n" if message else "")


def test_debug_shows_where(failing):
    ran = failing(SpecError("it is wrong"), "--debug")
    assert ran.code == 10
    assert ran.err.startswith("Traceback (most recent call last):")
    assert ran.err.endswith("gpustack: it is wrong\n")


def test_a_reader_that_goes_away_is_no_traceback(snapshots):
    reading, writing = os.pipe()
    os.close(reading)
    argv = [
        sys.executable,
        "-m",
        "gpustack",
        "-q",
        "scan",
        "--snapshot",
        str(snapshots / "nvswitch.json"),
        "-f",
        "json",
    ]
    ran = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=180)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_closed_output_is_no_traceback(snapshots):
    command = 'exec "$@" >&- <&-'
    argv = [sys.executable, "-m", "gpustack", "-q", "scan", "--snapshot", str(snapshots / "k4200.json")]
    ran = subprocess.run(["sh", "-c", command, "sh", *argv], capture_output=True, text=True, check=False, timeout=180)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_broken_plug_in_leaves_the_list_of_commands(gpustack, monkeypatch):
    broken = EntryPoint(name="broken_thing", value="gpustack.no_such_module:Thing", group="gpustack.cli")
    load = app.Commands.load_commands

    def with_broken(self, namespace):
        load(self, namespace)
        self.commands["broken thing"] = broken

    monkeypatch.setattr(app.Commands, "load_commands", with_broken)
    ran = gpustack("--help")
    assert ran.code == 0
    assert "Other commands:\n  broken thing        (can't be loaded: No module named 'gpustack.no_such_" in ran.out


def test_log_file(gpustack, snapshots, tmp_path):
    log = tmp_path / "log"
    assert gpustack("--log-file", log, "scan", "--snapshot", snapshots / "k4200.json").code == 0
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_log_is_the_file_that_was_checked(tmp_path, monkeypatch):
    """In a directory of others, its path may be of another file afterwards."""
    log, moved, change = tmp_path / "log", tmp_path / "moved", os.fchmod

    def replaced(descriptor, mode):
        change(descriptor, mode)
        log.rename(moved)
        log.touch(mode=0o666)

    monkeypatch.setattr(os, "fchmod", replaced)
    handler = app._LogFile(log)
    handler.emit(logging.makeLogRecord({"msg": "a request"}))
    handler.close()
    assert (moved.read_text(), log.read_text()) == ("a request\n", "")


@pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning")  # about InfluxDB
@pytest.mark.parametrize("options", [(), ("--debug", "-vvv")])
def test_no_log_has_a_secret(options, gpustack, tmp_path, monkeypatch):
    url = "http://me:geheim@127.0.0.1:1/v3"
    for name, value in {"AUTH_URL": url, "USERNAME": "me", "PASSWORD": "geheim2", "PROJECT_NAME": "p"}.items():
        monkeypatch.setenv(f"OS_{name}", value)
    log = tmp_path / "log"
    ran = gpustack("--log-file", log, *options, "quota", "show")
    text = log.read_text(encoding="utf-8") + ran.err
    assert "http://***@127.0.0.1:1/v3" in text
    assert "geheim" not in text
    assert hidden("geheim") == "geheim"  # forgotten


def test_a_full_disk_ends_the_log_with_one_message(caplog):
    log, root = app._LogFile("/dev/full"), logging.getLogger()
    root.addHandler(log)
    try:
        for _ in range(3):
            logging.getLogger("library").warning("a request")
    finally:
        root.removeHandler(log)
        with contextlib.suppress(OSError):
            log.close()
    ends = [record.getMessage() for record in caplog.records if record.name == "gpustack"]
    assert ends == ["/dev/full: the log ends here: [Errno 28] No space left on device"]


def finding(place, message="it is so", code="GPU901", severity=Severity.WARNING):
    return Finding(code=code, severity=severity, place=place, message=message, remedy="mend it")


def test_findings_are_printed_once_for_all_their_places():
    findings = [
        finding("gpu01 0000:84:00.0"),
        finding("gpu01 0000:88:00.0"),
        finding("gpu02"),
        finding("gpu01 0000:88:00.0"),
        finding("gpu03", "it is otherwise"),
        finding("gpu09", severity=Severity.ERROR),
    ]
    assert list(report_lines(findings)) == [
        ["ERROR GPU901 gpu09: it is so", "  → mend it"],
        [
            "WARNING GPU901 gpu01 0000:84:00.0, 0000:88:00.0; gpu02: it is so",
            "WARNING GPU901 gpu03: it is otherwise",
            "  → mend it",
        ],
    ]


def test_many_hosts_are_counted():
    ((line, _),) = report_lines(finding(f"gpu{n:02}") for n in range(0, 100, 2))
    assert line.endswith("gpu14; and 42 more: it is so")


def test_hosts_with_equal_places_are_a_pattern():
    places = [f"gpu{host:02} 0000:8{n}:00.0" for host in range(1, 41) for n in range(2)]
    ((line, _),) = report_lines([*map(finding, places), finding("storage 0000:01:00.0")])
    assert line == "WARNING GPU901 gpu[01:40] 0000:80:00.0, 0000:81:00.0; storage 0000:01:00.0: it is so"


def test_hosts_with_their_own_name_in_the_message_are_a_pattern():
    ((line, _),) = report_lines(finding(f"gpu{n}", f"/dev/vg_gpu{n}-root is full") for n in (1, 2))
    assert line == "WARNING GPU901 gpu[1:2]: /dev/vg_gpu[1:2]-root is full"


def test_many_places_of_several_hosts_are_counted():
    ((line, _),) = report_lines(finding(f"gpu0{host} 0000:8{n}:00.0") for host in (1, 2) for n in range(8 - host))
    assert line == "WARNING GPU901 gpu01 (7 places); gpu02 (6 places): it is so"


@pytest.mark.parametrize(
    ("raw", "printed"),
    [
        ("Grüße → 日本", "Grüße → 日本"),
        ("two\nlines", "two\nlines"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\u202eb\u200bc\x9b", "a\\u202eb\\u200bc\\u009b"),
    ],
)
def test_text_for_a_terminal(raw, printed):
    assert text.printable(raw) == printed
