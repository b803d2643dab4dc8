"""Sixty-four nodes over a real sshd on as many loopback addresses, against plain ssh and clush with the same key exchange.

Servers and clients share this machine's cores, so what the nodes do counts in every wall time; CPU is the client's alone.
Each node has an agent of its own, with its own state; its nvidia-smi takes a fifth of a second, as the real one does.
"""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import RATIO, Measure
from benchmarks.slow_smi import GPU_QUERY, write_slow_smi
from benchmarks.timing import best_wall_s, median_cpu_s, time_in_turn
from llmgw_core.demo.fake_sysfs import infiniband_ports, write_sysfs
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.fleet import MAX_LOGINS, Fleet
from llmgw_core.fleet.ssh import SshTransport
from llmgw_core.fleet.ssh_dial import JumpHosts
from tests.support.sshd import SSHD, Sshd, free_port, start_sshd, write_ssh_config

NODES = 64
SETTLE_S = 120.0
_SUBNET = 0xFEC0_0000_0000_00A1
_TICK_S = 0.002
_ADDRESSES_OF_ONE = 16  # sshd listens on no more


@dataclass(frozen=True)
class Cluster:
    """What runs, and how it is reached."""

    ssh_config: Path
    smi: Path
    targets: tuple[Target, ...]
    cluster_file: Path

    @property
    def addresses(self) -> list[str]:
        """Of all nodes."""
        return [target.address or "" for target in self.targets]

    @property
    def environ(self) -> dict[str, str]:
        """For llmgw, as an operator would have it."""
        return {"LLMGW_SSH_CONFIG": str(self.ssh_config), "LLMGW_CLUSTER": ""}


def measure_fanout(folder: Path, rounds: int) -> Iterator[Measure]:
    """First contact, cold start, and refresh of 64 nodes."""
    if not SSHD.exists():
        return
    with _running_cluster(folder) as cluster:
        first_s = asyncio.run(_time_first_contact(cluster))
        detail = f"the agent uploaded to {NODES} nodes; {MAX_LOGINS} logins at a time"
        yield Measure("first contact", first_s, None, "s", detail)
        spent = time_in_turn(_commands(cluster), rounds, cluster.environ)
        ssh_s = best_wall_s(spent["ssh"])
        ssh_cpu_s = median_cpu_s(spent.pop("ssh"))
        for name, times in spent.items():
            wall_s, cpu_s = best_wall_s(times), median_cpu_s(times)
            limit = 1 / 1.3 if name == "llmgw" else None
            detail = f"{wall_s:.2f} s against {ssh_s:.2f} s; client CPU {cpu_s:.2f} s against {ssh_cpu_s:.2f} s"
            yield Measure(f"{name}, {NODES} nodes / ssh", wall_s / ssh_s, limit, RATIO, detail)
        yield from asyncio.run(_measure_warm(cluster, rounds, ssh_s))


@contextmanager
def _running_cluster(folder: Path) -> Iterator[Cluster]:
    addresses = [f"127.0.0.{number}" for number in range(1, NODES + 1)]
    smi = write_slow_smi(folder)
    sshds: list[Sshd] = []
    try:
        for first in range(0, NODES, _ADDRESSES_OF_ONE):
            own = addresses[first : first + _ADDRESSES_OF_ONE]
            sshds.append(_start_sshd(folder / f"sshd{first}", own))
        targets = tuple(_make_target(folder, smi, n + 1, addresses[n]) for n in range(NODES))
        cluster_file = folder / "cluster.toml"
        cluster_file.write_text("\n".join(_format_target(target) for target in targets), "utf-8")
        config = write_ssh_config(folder / "ssh_config", *sshds)
        yield Cluster(config, smi, targets, cluster_file)
    finally:
        for sshd in sshds:
            sshd.clean_up()


def _start_sshd(root: Path, addresses: Sequence[str]) -> Sshd:
    port = free_port(addresses[0])
    # Sixteen nodes have one sshd here: each would allow ten logins at a time for itself.
    lines = ["MaxStartups 160", *(f"ListenAddress {item}:{port}" for item in addresses[1:])]
    sshd = start_sshd(root, address=addresses[0], port=port, lines=lines)
    key = " ".join(sshd.host_key.with_suffix(".pub").read_text("utf-8").split()[:2])
    sshd.known_hosts.write_text(f"[127.0.0.*]:{port} {key}\n", "utf-8")
    block = sshd.ssh_config.read_text("utf-8").splitlines()
    block[0] = f"Host {' '.join(addresses)}"
    kept = [line for line in block if "HostName" not in line]
    # A key exchange that OpenSSH and asyncssh both have, so that it costs both the same.
    sshd.ssh_config.write_text("\n".join([*kept, "  KexAlgorithms curve25519-sha256", ""]), "utf-8")
    return sshd


def _make_target(folder: Path, smi: Path, number: int, address: str) -> Target:
    root = folder / "nodes" / f"n{number:02}"
    bus_ids = [f"0000:{number:02x}:00.0" for number in range(8)]
    write_sysfs(root / "sys", infiniband_ports(8, number, _SUBNET), bus_ids)
    env = {
        "LLMGW_STATE_DIR": str(root / "state"),
        "LLMGW_CACHE_DIR": str(root / "cache"),
        "LLMGW_SYSFS_ROOT": str(root / "sys"),
        "LLMGW_KERNEL_LOG": "/dev/null",
        "LLMGW_NVIDIA_SMI": str(smi),
    }
    return Target(root.name, address=address, python=sys.executable, env=env)


def _format_target(target: Target) -> str:
    env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in target.env.items())
    return (
        f'[[nodes]]\nname = "{target.name}"\naddress = "{target.address}"\n'
        f'python = "{target.python}"\nenv = {{ {env} }}\n'
    )


def _commands(cluster: Cluster) -> dict[str, Sequence[str]]:
    """Each asks all nodes once, as many at a time, and ends."""
    config, width = str(cluster.ssh_config), str(MAX_LOGINS)
    query = [str(cluster.smi), *GPU_QUERY]
    ssh = ["xargs", "-P", width, "-I", "{}", "ssh", "-F", config, "{}", *query]
    listed = cluster.ssh_config.with_name("addresses")
    listed.write_text("\n".join(cluster.addresses) + "\n", "utf-8")
    llmgw = str(Path(sys.executable).with_name("llmgw"))
    commands: dict[str, Sequence[str]] = {
        "ssh": ["sh", "-c", 'exec "$@" <"$0"', str(listed), *ssh],
        "llmgw": [llmgw, "inventory", "--json", "--cluster", str(cluster.cluster_file)],
    }
    clush = shutil.which("clush", path=str(Path(sys.executable).parent)) or shutil.which("clush")
    if clush is not None:
        nodes = ",".join(cluster.addresses)
        options = ["-q", "-f", width, "-o", f"-F {config}", "-w", nodes]
        commands["clush"] = [clush, *options, " ".join(query)]
    return commands


@asynccontextmanager
async def _open_fleet(cluster: Cluster) -> AsyncIterator[tuple[Fleet, FleetSnapshot]]:
    jumps = JumpHosts()
    fleet = Fleet(
        cluster.targets, connect=lambda target: SshTransport(target, cluster.environ, jumps)
    )
    async with fleet:
        snapshot = await fleet.settle(SETTLE_S)
        silent = [view.node for view in snapshot.nodes if not view.node.reachable]
        if silent:
            raise RuntimeError(f"{len(silent)} nodes are silent: {silent[0].error}")
        yield fleet, snapshot


async def _time_first_contact(cluster: Cluster) -> float:
    began = time.perf_counter()
    async with _open_fleet(cluster):
        return time.perf_counter() - began


async def _measure_warm(cluster: Cluster, rounds: int, ssh_s: float) -> Sequence[Measure]:
    """Refresh over connections that are open, and how long the event loop stood still while they were opened."""
    async with _watched_loop() as stalls, _open_fleet(cluster) as (fleet, _):
        opening_s = max(stalls)
        times = []
        for _ in range(rounds):
            await asyncio.sleep(
                1.0
            )  # each refresh finds the agents as a console does, between two readings
            began = time.perf_counter()
            await asyncio.gather(
                *(fleet.client(target.name).inventory(max_age_s=3.0) for target in cluster.targets)
            )
            times.append(time.perf_counter() - began)
    detail = f"{1000 * min(times):.0f} ms for all {NODES}; the agents read their GPUs every 3 s"
    return (
        Measure(f"warm refresh, {NODES} nodes / ssh", min(times) / ssh_s, 0.1, RATIO, detail),
        Measure("event loop stall", 1000 * opening_s, 50, "ms", "while 64 connections are opened"),
    )


@asynccontextmanager
async def _watched_loop() -> AsyncIterator[list[float]]:
    """A list of how much later than asked the event loop came back, in seconds."""
    late: list[float] = [0.0]

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            late.append(time.perf_counter() - began - _TICK_S)

    task = asyncio.create_task(tick())
    try:
        yield late
    finally:
        task.cancel()
