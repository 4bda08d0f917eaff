"""Snapshot files: written for their owner only, and read with distrust."""

from __future__ import annotations

import io
import json
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.base.errors import SnapshotError
from gpustack.hosts.facts import store
from gpustack.hosts.facts.store import SnapshotReader, load_snapshot, parse_host, read_snapshot, save_snapshot
from support.host_samples import SNAPSHOTS, function, raw_host, snapshot


def text_of(*hosts, **more):
    return json.dumps({"gpustack_snapshot": 1, "hosts": list(hosts), **more}).encode()


def whole(text, *, keep=False):
    reader = SnapshotReader(keep=keep)
    reader.add(io.BytesIO(text), "s.json")
    return reader.snapshot()


def complaint(text):
    with pytest.raises(SnapshotError) as caught:
        whole(text)
    assert caught.value.where == "s.json"
    return caught.value.what


@pytest.mark.parametrize("path", sorted(SNAPSHOTS.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_saved_is_read_again(path, tmp_path):
    first = read_snapshot(path, keep=True)
    copy = tmp_path / "copy.json"
    save_snapshot(copy, first.raw)
    assert read_snapshot(copy, keep=True) == first


def test_only_the_owner_may_read_it_even_over_a_wider_file(tmp_path):
    path = tmp_path / "s.json"
    path.write_text("old")
    path.chmod(0o666)
    save_snapshot(path, [snapshot("k4200")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [host.hostname for host in load_snapshot(path)] == ["gpu01"]


def test_the_bare_output_of_the_collector_is_a_snapshot():
    assert [h.hostname for h in whole(json.dumps(snapshot("laptop")).encode()).hosts] == ["laptop"]


def test_keys_of_newer_collectors_are_ignored_but_kept_in_the_plain_data():
    text = text_of(raw_host(function("0000:88:00.0", aura="blue"), weather="fine"))
    parsed = whole(text, keep=True)
    assert parsed.raw[0]["weather"] == "fine"


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(SnapshotError, match="can't write the snapshot: No such file or directory"):
        save_snapshot(tmp_path / "nowhere" / "s.json", [])
    with pytest.raises(SnapshotError, match="can't read the snapshot: No such file or directory"):
        load_snapshot(tmp_path / "nowhere" / "s.json")


def test_snapshots_without_a_host_are_refused(tmp_path):
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    paths[0].write_text('{"gpustack_snapshot": 1, "hosts": []}')
    save_snapshot(paths[1], [])
    for asked, where in ((paths[0], f"{paths[0]}"), (tmp_path, f"{paths[0]}, {paths[1]}")):
        with pytest.raises(SnapshotError, match="the snapshot contains no hosts") as raised:
            load_snapshot(asked)
        assert raised.value.where == where
    save_snapshot(paths[1], [raw_host()])
    assert [host.hostname for host in load_snapshot(tmp_path)] == ["gpu01"]


WHOLE = text_of(raw_host(function("0000:88:00.0"), function("0000:88:00.1", iommu_group=2)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "the file ends too early"),
        (WHOLE[:-1], "the file ends too early"),
        (WHOLE[: len(WHOLE) // 2], "the file ends too early"),
        (b"hosts: []", "the file is not valid JSON"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"gpustack_snapshot": ' + b"9" * 5000 + b"}", "nested too deeply"),
        (b"[]", "$: expected an object, found a list"),
        (b'"gpu01"', '$: expected an object, found "gpu01"'),
        (b"{}", "it is no snapshot"),
        (text_of(gpustack_snapshot=2), "$.gpustack_snapshot: version 2, and this gpustack reads version 1"),
        (text_of(hosts={}), "$.hosts: expected a list, found an object"),
        (text_of(7), "$.hosts[0]: expected an object, found 7"),
        (text_of({**raw_host(), "version": 3}), "$.hosts[0].version: version 3"),
        (json.dumps({**raw_host(), "version": "1\n"}).encode(), '$.version: version "1\\n"'),
        (text_of(raw_host(hostname="a;reboot")), "$.hosts[0].hostname: string should match pattern"),
        (
            text_of(raw_host(unread=[{"path": "/etc\nERROR GPU999", "error": ""}])),
            "$.hosts[0].unread[0].path: string should match pattern",
        ),
        (text_of(raw_host(hostname="a\nb")), "$.hosts[0].hostname: string should match pattern"),
        (
            text_of(raw_host(function("0000:88:00.0"), function("0000:88:00.0"))),
            "host gpu01: $.hosts[0].pci[1].address: 0000:88:00.0 is listed twice",
        ),
        (
            text_of(raw_host(function("0000:88:00.0", modules=["x; rm -rf /"]))),
            "host gpu01: $.hosts[0].pci[0].modules[0]: string should match pattern",
        ),
        (
            text_of(raw_host(function("0000:88:00.0", iommu_group="seven"))),
            'pci[0].iommu_group: input should be a valid integer, unable to parse string as an integer, found "seven"',
        ),
        (text_of(raw_host(function("0000:88:00.0", slot="\x1b[2J"))), "pci[0].slot: string should match pattern"),
        (
            text_of(raw_host(files={"/etc/rc.local": {"text": "", "mode": "rwxr-xr-x"}})),
            "files./etc/rc.local.mode: string should match pattern",
        ),
        (text_of(raw_host(), raw_host()), "host gpu01 is in it twice"),
        (text_of({"version": 1, "hostname": "gpu01"}), "host gpu01: $.hosts[0].pci: field required"),
    ],
)
def test_bad_snapshots(text, expected):
    assert expected in complaint(text)


def test_many_problems_are_counted():
    hostile = raw_host(*(function(f"0000:88:00.{n}", driver="\n") for n in range(8)))
    lines = complaint(text_of(hostile)).splitlines()
    assert len(lines) == 6
    assert lines[-1] == "and 3 more"


def test_too_large(tmp_path, monkeypatch):
    path = tmp_path / "s.json"
    path.write_bytes(WHOLE)
    monkeypatch.setattr(store, "MAX_BYTES", len(WHOLE) - 1)
    with pytest.raises(SnapshotError, match="larger than"):
        load_snapshot(path)


def lines(*hosts):
    """A snapshot as gpustack writes it."""
    path = io.StringIO()
    path.writelines(store._lines(hosts))
    return path.getvalue().encode()


THREE = lines(*(raw_host(function("0000:88:00.0"), hostname=f"gpu0{n}") for n in (1, 2, 3)))


def test_a_snapshot_has_one_host_per_line():
    assert [json.loads(THREE)["hosts"][n]["hostname"] for n in (0, 1, 2)] == ["gpu01", "gpu02", "gpu03"]
    assert len(THREE.splitlines()) == 5
    assert whole(THREE).hosts == whole(json.dumps(json.loads(THREE)).encode()).hosts


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        (THREE.splitlines(keepends=True), 4, "host gpu03: the file ends too early: was it cut off?"),
        (THREE[: THREE.index(b"gpu03") + 20], 4, "host gpu03: the file ends too early"),
        (THREE[: THREE.index(b"gpu02") + 20] + b"\n" + THREE[THREE.index(b"gpu03") :], 3, "host gpu02: the file"),
        (THREE.replace(b"gpu03", b"gpu01"), 4, "host gpu01 is in it twice, first in line 2"),
        (THREE.replace(b'"gpu02"', b'"gpu02", "x": [' + b"7," * 400 + b"7]"), 3, "host gpu02: larger than"),
        (THREE + b"{}", 5, "the file does not end with its last host"),
        (THREE.replace(b'{"hostname": "gpu02"', b'[{"hostname": "gpu02"'), 3, "the file is not valid JSON"),
        (THREE.replace(b'"0000:88:00.0"', b'"nowhere"', 1), 2, "host gpu01: $.hosts[0].pci[0].address"),
    ],
    ids=["end", "cut", "hole", "twice", "large", "more", "broken", "value"],
)
def test_an_error_names_host_and_line(text, place, expected, monkeypatch):
    monkeypatch.setattr(store, "MOST_BYTES_OF_HOST", 1000)
    with pytest.raises(SnapshotError) as caught:
        whole(text if isinstance(text, bytes) else b"".join(text[:-1]))
    assert caught.value.where == f"s.json:{place}"
    assert expected in caught.value.what


def test_equal_functions_and_kernels_are_one_object():
    first, second = whole(lines(*({**snapshot("k4200"), "hostname": name} for name in ("gpu01", "gpu02")))).hosts
    assert all(one is other for one, other in zip(first.pci, second.pci, strict=True))
    assert first.boot.kernels[0].modules is second.boot.kernels[0].modules
    assert {id(file) for file in first.files.values()} == {id(file) for file in second.files.values()}


EARLY, LATE = "2026-11-24T10:00:00Z", "2026-11-24T11:00:00+00:30"  # half an hour apart


def files(directory, **hosts):
    """A file for each keyword, with facts of its hosts; and the warnings of reading the directory."""
    directory.mkdir(exist_ok=True)
    for name, several in hosts.items():
        save_snapshot(directory / f"{name}.json", several)
    warnings = []
    return read_snapshot([directory], keep=True, warn=warnings.append), warnings


def test_files_and_directories_are_one_snapshot_and_each_is_read_once(tmp_path, monkeypatch):
    (tmp_path / ".b.json.part").write_text("half")  # as write_atomic names what it writes
    (tmp_path / ".c.json").write_text("half")
    (tmp_path / "README").write_text("not read")
    files(tmp_path, b=[raw_host(hostname="gpu02")], a=[raw_host(hostname="gpu03"), raw_host(hostname="gpu01")])
    opened, real = [], store._documents
    monkeypatch.setattr(store, "_documents", lambda stream, where: opened.append(where) or real(stream, where))
    hosts = load_snapshot([tmp_path / "b.json", tmp_path])
    assert [host.hostname for host in hosts] == ["gpu02", "gpu03", "gpu01"]
    assert opened == [str(tmp_path / "b.json"), str(tmp_path / "a.json")]


@pytest.mark.parametrize("swapped", [False, True])
def test_newer_facts_of_a_host_count_whatever_the_order_of_the_files(tmp_path, swapped):
    hosts = {
        name: [raw_host(hostname=h, collected_at=at, memory_mib=mib) for h in ("gpu01", "gpu02")]
        for name, at, mib in (("old", EARLY, 1), ("new", LATE, 2))
    }
    names = {"old": "2", "new": "1"} if swapped else {"old": "1", "new": "2"}
    snapshot, warnings = files(tmp_path, **{names[name]: several for name, several in hosts.items()})
    assert [(h.hostname, h.memory_mib) for h in snapshot.hosts] == [("gpu01", 2), ("gpu02", 2)]
    assert [raw["memory_mib"] for raw in snapshot.raw] == [2, 2]
    old, new = (f"{tmp_path}/{names[name]}.json" for name in ("old", "new"))
    assert warnings == [f"{old} and {new} differ about gpu[01:02]; the facts in {new} are newer and count"]


@pytest.mark.parametrize(
    ("first", "second"), [(EARLY, LATE), (LATE, EARLY), (None, EARLY), (None, None), (EARLY, EARLY)]
)
def test_equal_facts_of_a_host_in_two_files_are_no_problem(tmp_path, first, second):
    snapshot, warnings = files(tmp_path, a=[raw_host(collected_at=first)], b=[raw_host(collected_at=second)])
    assert (len(snapshot.hosts), warnings) == (1, [])
    assert LATE not in (first, second) or snapshot.hosts[0].collected_at == snapshot.raw[0]["collected_at"] == LATE


@pytest.mark.parametrize(("first", "second"), [(None, EARLY), (EARLY, None), (EARLY, EARLY), ("yesterday", LATE)])
def test_different_facts_without_an_order_are_an_error(tmp_path, first, second):
    a, b = raw_host(collected_at=first, memory_mib=1), raw_host(collected_at=second, memory_mib=2)
    with pytest.raises(SnapshotError, match="the times of the facts do not show") as caught:
        files(tmp_path, a=[raw_host(hostname="gpu07"), a], b=[b])
    assert caught.value.where == f"{tmp_path}/b.json:2"
    assert caught.value.what.startswith(f"host gpu01: {tmp_path}/a.json:3 differs")


def test_twice_in_one_of_several_files_stays_an_error(tmp_path):
    with pytest.raises(SnapshotError, match="host gpu01 is in it twice, first in line 2") as caught:
        files(tmp_path, a=[raw_host(collected_at=EARLY)], b=[raw_host(collected_at=LATE), raw_host(collected_at=EARLY)])
    assert caught.value.where == f"{tmp_path}/b.json:3"


def test_a_directory_without_a_snapshot_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "hosts.yaml").touch()
    with pytest.raises(SnapshotError, match=r"no file \*.json in the directory"):
        load_snapshot(tmp_path)
    monkeypatch.setattr("pathlib.Path.iterdir", lambda path: os.scandir(path / "nowhere"))  # also for root
    with pytest.raises(SnapshotError, match="can't read the directory: No such file or directory"):
        load_snapshot(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def problem(raw):
    """What is wrong with a host, or None when it is one."""
    try:
        parse_host(raw, "test")
    except SnapshotError as error:
        return error.what
    return None


@given(st.sampled_from(sorted(raw_host(function("0000:88:00.0")))), JSON)
def test_any_value_in_a_host_is_facts_or_a_clear_error(key, value):
    message = problem({**raw_host(function("0000:88:00.0")), key: value})
    assert message is None or "$" in message


@given(st.sampled_from(sorted(snapshot("k4200")["pci"][-1])), JSON)
def test_any_value_in_a_function_is_facts_or_a_clear_error(key, value):
    message = problem(raw_host({**snapshot("k4200")["pci"][-1], key: value}))
    assert message is None or "$.pci[0]" in message


@given(st.integers(min_value=0, max_value=len(WHOLE) - 1))
def test_a_snapshot_cut_anywhere_is_an_error(length):
    with pytest.raises(SnapshotError):
        whole(WHOLE[:length])
