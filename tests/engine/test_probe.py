"""The probe: limits of control groups, addresses, and asking for mlx once."""

import json
import os
import socket
import sys
from types import SimpleNamespace

import psutil
import pytest

from exo_cli.engine import probe
from exo_cli.engine.probe import Backends, backends, cores, interface_addresses, memory_bytes, node_facts, threads_for

GB = 1 << 30


@pytest.fixture(autouse=True)
def fresh():
    probe._backends.cache_clear()
    yield
    probe._backends.cache_clear()


@pytest.fixture
def machine(monkeypatch):
    memory = SimpleNamespace(total=64 * GB, available=32 * GB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)


def a_root(tmp_path, groups, **files):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return tmp_path


@pytest.mark.usefixtures("machine")
class TestLimits:
    def test_without_groups(self, tmp_path):
        assert memory_bytes(tmp_path) == (64 * GB, 32 * GB)
        assert cores(tmp_path) == 8

    def test_version_2_on_every_level(self, tmp_path):
        root = a_root(
            tmp_path,
            "0::/a/b",
            a__b__memory_DOT_max="max",
            a__memory_DOT_max=4 * GB,
            a__memory_DOT_current=3 * GB,
            a__memory_DOT_stat=f"anon {GB}\ninactive_file {2 * GB}",
            a__b__cpu_DOT_max="max 100000",
            a__cpu_DOT_max="250000 100000",
        )
        assert memory_bytes(root) == (4 * GB, 3 * GB)
        assert cores(root) == 2

    def test_version_1(self, tmp_path):
        root = a_root(
            tmp_path,
            "5:memory:/x\n4:cpu,cpuacct:/x\n0::/",
            memory__x__memory_DOT_limit_in_bytes=2 * GB,
            memory__x__memory_DOT_usage_in_bytes=GB,
            memory__memory_DOT_limit_in_bytes=9223372036854771712,
            **{"cpu,cpuacct__cpu_DOT_cfs_quota_us": 50000, "cpu,cpuacct__cpu_DOT_cfs_period_us": 100000},
        )
        assert memory_bytes(root) == (2 * GB, GB)
        assert cores(root) == 1

    def test_a_path_that_is_not_mounted_here(self, tmp_path):
        root = a_root(tmp_path, "0::/../../kubepods/x", memory_DOT_max=GB, memory_DOT_current=0, cpu_DOT_max="-1 0")
        assert memory_bytes(root) == (GB, GB)
        assert cores(root) == 8

    def test_more_than_the_machine_has_is_no_limit(self, tmp_path):
        root = a_root(tmp_path, "0::/", memory_DOT_max=128 * GB, memory_DOT_current=GB, cpu_DOT_max="6400000 100000")
        assert memory_bytes(root) == (64 * GB, 32 * GB)
        assert cores(root) == 8


def test_this_machine():
    total, available = memory_bytes()
    assert 0 < available <= total
    assert 1 <= cores() <= os.cpu_count()
    assert interface_addresses()
    assert probe.free_disk_bytes(probe.Path("/nowhere/at/all")) > 0


def interfaces(monkeypatch, **addresses):
    down = {"eth9"}
    stats = {name: SimpleNamespace(isup=name not in down) for name in addresses}
    families = {
        name: [SimpleNamespace(family=socket.AF_INET6 if ":" in one else socket.AF_INET, address=one) for one in some]
        for name, some in addresses.items()
    }
    monkeypatch.setattr(psutil, "net_if_stats", lambda: stats)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: families)


def test_addresses_in_order_of_reach(monkeypatch):
    interfaces(
        monkeypatch,
        lo=["127.0.0.1", "::1"],
        eth0=["fe80::1%eth0", "2001:db8::1", "169.254.3.4", "10.0.0.5"],
        eth9=["10.9.9.9"],
    )
    assert interface_addresses() == ("10.0.0.5", "2001:db8::1", "169.254.3.4", "fe80::1%eth0")


def test_loopback_when_there_is_nothing_else(monkeypatch):
    interfaces(monkeypatch, lo=["127.0.0.1", "::1"])
    assert interface_addresses() == ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("world_size", "n_cores", "runners", "threads"),
    [(1, 8, 1, 7), (1, 8, 3, 2), (1, 2, 1, 1), (1, 2, 5, 1), (1, 1, 1, 1), (1, 8, 0, 7), (2, 8, 1, 1)],
)
def test_threads(world_size, n_cores, runners, threads):
    assert threads_for(world_size, n_cores, runners) == threads


ANSWER = {"backends": ["mlx_metal", "mlx_cpu"], "engines": ["mlx"], "memory": {"working_set_bytes": 5}}


def a_child(monkeypatch, tmp_path, code, deadline_seconds=20.0):
    """A child that counts how often it is asked."""
    count = tmp_path / "asked"
    script = f"open({str(count)!r}, 'a').write('x')\n{code}"
    monkeypatch.setattr(probe, "CHILD", (sys.executable, "-c", script))
    monkeypatch.setattr(probe, "PROBE_SECONDS", deadline_seconds)
    return lambda: len(count.read_text())


def test_mlx_is_asked_for_once(monkeypatch, tmp_path):
    asked = a_child(monkeypatch, tmp_path, f"print({json.dumps(ANSWER)!r})")
    expected = Backends(("mlx_metal", "mlx_cpu"), ("mlx",), 5)
    for _ in range(3):
        assert backends(tmp_path / "cache") == expected
    probe._backends.cache_clear()
    assert backends(tmp_path / "cache") == expected
    assert asked() == 1
    monkeypatch.setattr(probe, "version", lambda name: "99")
    assert backends(tmp_path / "cache") == expected
    assert asked() == 2


@pytest.mark.parametrize("text", ["", "[]", '{"installed": 1}', '{"installed": "x", "found": {}}'])
def test_a_damaged_memory_is_no_answer(monkeypatch, tmp_path, text):
    asked = a_child(monkeypatch, tmp_path, f"print({json.dumps(ANSWER)!r})")
    (tmp_path / "backends.json").write_text(text)
    assert backends(tmp_path).names == ("mlx_metal", "mlx_cpu")
    assert asked() == 1


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("print('mlx needs glibc 2.35'); raise SystemExit(1)", "mlx needs glibc 2.35"),
        ("print('no json')", "mlx could not be asked"),
        ("print('[]')", "[]"),
        ("raise SystemExit(3)", "asking for mlx ended with code 3"),
        ("import time; time.sleep(9)", "mlx did not answer within 1 s"),
    ],
)
def test_without_mlx_there_is_a_reason_and_it_is_not_remembered(monkeypatch, tmp_path, code, fault):
    a_child(monkeypatch, tmp_path, code, deadline_seconds=1.0)
    found = backends(tmp_path / "cache")
    assert found.names == ()
    assert found.fault.startswith(fault)
    assert not (tmp_path / "cache").exists()


def test_facts_of_a_node(monkeypatch, tmp_path):
    a_child(monkeypatch, tmp_path, f"print({json.dumps(ANSWER)!r})")
    facts = node_facts("laptop", ("10.0.0.5:7101",), log_dir="/x/log", cache=tmp_path)
    assert (facts.name, facts.addresses, facts.backends, facts.engines) == (
        "laptop", ("10.0.0.5:7101",), ("mlx_metal", "mlx_cpu"), ("mlx",),
    )  # fmt: skip
    assert facts.memory_available_bytes == 5, "Metal gives no more"
    assert facts.log_dir == "/x/log"
    assert facts.platform.startswith(sys.platform)
    assert node_facts("laptop", cache=tmp_path).addresses == interface_addresses()


def test_the_real_child_is_asked(tmp_path):
    found = backends(tmp_path)
    assert "mlx_cpu" in found.names, found.fault
    assert "mlx" in found.engines
