"""tools/setup and the report of parts that do not start: one clear sentence each, before any test."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
CONFTEST = (TOP / "tests" / "conftest.py").read_text(encoding="utf-8")

pytest_plugins = ["pytester"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the set-up reads of a checkout, below a path with a space, and a .venv whose Python this one is."""
    top = tmp_path / "a check out"
    shutil.copytree(TOP / "tools", top / "tools")
    shutil.copy(TOP / "pyproject.toml", top)
    (top / "demo").mkdir()
    shutil.copy(TOP / "demo" / "pyproject.toml", top / "demo")
    (top / ".venv" / "bin").mkdir(parents=True)
    return top


def program(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def setup(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{checkout / '.venv' / 'bin'}:/usr/bin:/bin"
    return subprocess.run(
        [checkout / "tools" / "setup", *arguments],
        env={"HOME": str(checkout), "PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_missing_packages_are_one_sentence_with_the_command(checkout: Path) -> None:
    programs = checkout / ".venv" / "bin"
    program(programs, "dpkg-query", "exit 1")
    program(programs, "id", "echo 1000")
    program(programs, "sudo", "exit 1")
    process = setup(checkout, "--apt", "cpio", "mariadb-client-core")
    assert process.returncode == 1
    (line,) = process.stderr.splitlines()
    assert line.endswith("As root, run: apt-get install --no-install-recommends cpio mariadb-client-core")


def test_a_package_that_can_not_be_downloaded_is_one_sentence(checkout: Path) -> None:
    programs = checkout / ".venv" / "bin"
    program(programs, "dpkg-query", "exit 1")
    program(programs, "apt-get", "echo E: Unable to locate package; exit 100")
    program(programs, "id", "echo 1000")
    program(programs, "sudo", "exit 1")
    process = setup(checkout, "--unpack", "prometheus", GPUSTACK_CACHE=str(checkout / "a cache"))
    assert process.returncode == 1
    (line,) = process.stderr.splitlines()
    assert line.endswith("As root, run: apt-get install --no-install-recommends prometheus")
    assert list((checkout / "a cache/unpacked").iterdir()) == []


def test_a_package_is_unpacked_once_and_without_remains(checkout: Path) -> None:
    """apt-get and dpkg-deb are stand-ins here: lists are missing at first, and the package has one program."""
    programs, cache = checkout / ".venv" / "bin", checkout / "a cache"
    program(programs, "dpkg-query", "exit 1")
    program(programs, "id", "echo 0")
    program(
        programs,
        "apt-get",
        f"""case $1 in
update) touch '{checkout}/lists' ;;
download) [ -e '{checkout}/lists' ] && echo "$@" >>'{checkout}/downloads' && touch prometheus_1.deb ;;
esac""",
    )
    program(programs, "dpkg-deb", 'mkdir -p "$3/usr/bin" && cp "$2" "$3/usr/bin/promtool"')
    for _again in range(2):
        process = setup(checkout, "--unpack", "prometheus", GPUSTACK_CACHE=str(cache))
        assert (process.returncode, process.stderr) == (0, "")
    assert [path.name for path in (cache / "unpacked").iterdir()] == ["prometheus"]
    assert (cache / "unpacked/prometheus/usr/bin/promtool").exists()
    assert (checkout / "downloads").read_text() == "download -qq prometheus\n"


def test_too_little_memory_is_refused(checkout: Path, tmp_path: Path) -> None:
    little = tmp_path / "meminfo"
    little.write_text("MemTotal:        4040404 kB\n", encoding="utf-8")
    process = setup(checkout, "--room", MEMINFO=str(little))
    assert process.returncode == 1
    assert process.stderr.startswith("setup: This machine has 3945 MiB of memory; the tests need 6144 MiB.")


def test_a_full_disk_is_refused_with_its_path(checkout: Path, tmp_path: Path) -> None:
    program(checkout / ".venv" / "bin", "df", "echo header; echo /dev/sda 100 90 1048576 90% /")
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:        8040404 kB\n", encoding="utf-8")
    process = setup(checkout, "--room", MEMINFO=str(meminfo))
    assert process.returncode == 1
    assert process.stderr.startswith(f"setup: {checkout} has 1024 MiB of free disk space; ")


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("Failed to establish a new connection: [Errno 111]", "The package registry is unreachable"),
        ("OSError: [Errno 28] No space left on device", "The disk is full."),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "A package differs from its hash"),
    ],
)
def test_noise_goes_to_a_log_that_the_failure_names(checkout: Path, output: str, sentence: str) -> None:
    """pip is a stand-in here: it warns, and fails."""
    program(
        checkout / ".venv" / "bin",
        "python",
        f'case "$*" in *install*) echo WARNING: noise; echo "{output}"; exit 1; esac',
    )
    process = setup(checkout, "test")
    assert process.returncode == 1
    (line,) = process.stderr.splitlines()
    assert line.startswith(f"setup: {sentence}")
    assert line.endswith(f"Log: {checkout / '.venv' / 'setup.log'}")
    assert "noise" not in process.stdout
    assert "WARNING: noise" in (checkout / ".venv" / "setup.log").read_text(encoding="utf-8")


def test_a_version_of_python_is_supported_everywhere_or_nowhere() -> None:
    """The packages are locked for the versions of the classifiers; set-up, Nova's releases and the pages name them."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    first, last = pythons[0], pythons[-1]
    setup_text = (TOP / "tools/setup").read_text(encoding="utf-8")
    (candidates,) = re.findall(r"^for candidate in .*", setup_text, re.MULTILINE)
    assert sorted(re.findall(r"python(3\.\d+)", candidates)) == pythons
    assert f"({first.replace('.', ', ')}) <= sys.version_info[:2] <= ({last.replace('.', ', ')})" in setup_text
    assert f"Python {first} to {last} is missing" in setup_text
    for page in ("README.md", "docs/howto/install.md", "docs/reference/supported.md"):
        assert f"Python {first} to {last}" in (TOP / page).read_text(encoding="utf-8"), page
    releases = tomllib.loads((TOP / "demo/gpustack_demo/embedded/releases.toml").read_text(encoding="utf-8"))
    for name in ("2026.2", "2025.2"):  # those of `make demo` and `make test`
        assert releases["releases"][name]["python"] == pythons, name


def test_every_lock_has_hashes_for_its_group() -> None:
    """What pyproject.toml names directly is locked; tools/lock takes care of the rest."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {**project["dependency-groups"], "runtime": project["project"]["dependencies"]}
    del groups["dev"]
    shared = [name for group in ("build", "runtime") for name in _locked(group)]
    for group, requirements in groups.items():
        locked = {*_locked(group), *shared}
        required = {_name(requirement) for requirement in requirements}
        assert required <= locked, f"{group}: run `make lock`"


def _locked(group: str) -> list[str]:
    text = (TOP / "tools" / "locks" / f"{group}.txt").read_text(encoding="utf-8")
    entries = text.split("\n")[1:]
    names = [line for line in entries if line and not line.startswith(" ")]
    assert all(line.endswith("\\") for line in names), "a package without a hash"
    return [_name(line) for line in names]


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-").replace(".", "-")


PART = """
import pytest
from gpustack_demo.embedded.process import ServiceError

@pytest.fixture
def part():
    raise ServiceError("the server does not start\\nlog", where="a place", remedy="do something")

@pytest.mark.parametrize("number", range(5))
def test_of_the_part(part, number): pass

def test_of_something_else(): pass
"""


def test_a_part_that_does_not_start_is_one_error(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    (pytester.path / "costs.json").write_text("{}", encoding="utf-8")
    pytester.makepyfile(PART)
    result = pytester.runpytest("-rs", "-n0")
    result.assert_outcomes(errors=1, skipped=4, passed=1)
    result.stdout.fnmatch_lines(["*the server does not start (reported by *"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_expensive_files_come_first(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    (pytester.path / "costs.json").write_text('{"test_slow.py": 60, "test_slower.py": 90}', encoding="utf-8")
    pytester.makepyfile(
        test_quick="def test_it(): pass", test_slow="def test_it(): pass", test_slower="def test_it(): pass"
    )
    result = pytester.runpytest("-v", "-n0")
    result.stdout.fnmatch_lines(["test_slower.py*", "test_slow.py*", "test_quick.py*"])


RELEASES = """
import pytest

@pytest.fixture(scope="module", params=["2025.2", "2026.2"])
def release_name(request): return request.param

@pytest.mark.parametrize("number", range(4))
def test_it(number, release_name, worker_id): print(f"{release_name} on {worker_id}")
"""


def test_a_worker_takes_a_release_of_a_module(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    (pytester.path / "costs.json").write_text("{}", encoding="utf-8")
    pytester.makepyfile(**{"nova/test_of_releases": RELEASES})
    result = pytester.runpytest("-n2", "--dist=loadfile", "--no-loadscope-reorder", "-rP")
    placed = [line for line in result.outlines if re.fullmatch(r"\S+ on gw\d", line)]
    assert len(placed) == 8
    assert (
        len(set(placed)) == len({line.split()[0] for line in placed}) == len({line.split()[-1] for line in placed}) == 2
    )


def test_each_lab_test_of_the_readme_has_a_command() -> None:
    readme = (TOP / "tests" / "lab" / "README.md").read_text(encoding="utf-8")
    for command in ["make lab", *re.findall(r"^make lab TEST=[a-z0-9-]+", readme, re.MULTILINE)]:
        process = subprocess.run([*command.split(), "--dry-run"], cwd=TOP, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        assert re.search(r"python (-m pytest .*tests/lab|bench/lab/)", process.stdout), command
        # The shell must read the recipe: dash stops at a quote that does not end.
        subprocess.run(["sh", "-n"], input=process.stdout, text=True, check=True)


def test_an_unknown_lab_test_lists_the_known_ones() -> None:
    process = subprocess.run(["make", "lab", "TEST=nothing"], cwd=TOP, capture_output=True, text=True)
    assert process.returncode == 2
    assert "TEST=nothing is not one of: addresses all amd" in process.stderr
