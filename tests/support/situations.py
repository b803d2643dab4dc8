"""Launches over several nodes as the network checks see them, healthy unless told otherwise."""

from dataclasses import replace

from llmgw_core.domain import network as net
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.network import (
    Interface,
    InterfaceAddress,
    Limit,
    NodeNetwork,
    SharedMemory,
)
from llmgw_core.planning.interfaces import ChosenInterface
from llmgw_core.planning.network_checks import run_checks
from llmgw_core.planning.network_checks.situation import Side, Situation

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
LOCAL_GID = "fe80:0000:0000:0000:0200:00ff:fe00:03ec"
CURED = {
    "NCCL_SOCKET_IFNAME": "=eth0",
    "GLOO_SOCKET_IFNAME": "eth0",
    "NCCL_NET": "IB",
    "VLLM_HOST_IP": "10.0.0.1",
}


def ib(hca: str = "mlx5_0", number: int = 1, **changes: object) -> Port:
    port = Port(hca, 1, "InfiniBand", PortKind.INFINIBAND, "ACTIVE", "LinkUp", 400.0, lid=number)
    gid = f"fe80:0000:0000:0000:0000:0000:0000:{number:04x}"
    port = replace(port, gid=gid, gid_index=0, usable=True, fabric="ib", model="MT4129")
    return replace(port, sm_lid=1, pkeys=("0xffff",), **changes)  # type: ignore[arg-type]


def roce(hca: str = "mlx5_0", ip: int = 0x0A000001, **changes: object) -> Port:
    port = Port(hca, 1, "Ethernet", PortKind.ROCE, "ACTIVE", "LinkUp", 400.0, model="MT4129")
    gid = f"0000:0000:0000:0000:0000:ffff:{ip >> 16:04x}:{ip & 0xFFFF:04x}"
    port = replace(port, gid=gid, gid_index=3, gid_type="RoCE v2", netdev=f"n{hca[-1]}")
    port = replace(port, usable=True, mtu_bytes=4096, fabric="roce")
    return replace(port, **changes)  # type: ignore[arg-type]


def facts(address: str = "10.0.0.1", **changes: object) -> NodeNetwork:
    """A node that nothing is wrong with."""
    eth0 = Interface("eth0", (InterfaceAddress(address, 24),), net.PHYSICAL, 1500, True, True, True)
    healthy = NodeNetwork(
        interfaces=(eth0,),
        routes=(),
        hostname="gpu",
        hostname_addresses=(address,),
        memlock=Limit(net.UNLIMITED, net.UNLIMITED),
        may_lock_memory=False,
        shared_memory=SharedMemory(64 << 30, 64 << 30),
        virtual_machine=False,
        verbs_library=True,
        verbs_providers=("mlx5",),
        net_plugins=(),
        iommu_groups={"identity": 80},
        peer_memory=("nvidia_peermem 570.86.15", "memory_peers/nv_mem"),
        environment={},
        conf_files=(),
        packages={"nvidia-nccl-cu12": "2.27.3"},
    )
    return replace(healthy, **changes)  # type: ignore[arg-type]


def side(name: str, *ports: Port, network: NodeNetwork | None = None, **changes: object) -> Side:
    """A node whose usable ports are the launch's, and whose ranks get what a plan gives them."""
    number = ord(name) - ord("a") + 1
    address = f"10.0.0.{number}"
    chosen = tuple(port for port in ports if port.usable)
    made = Side(
        name,
        facts(address) if network is None else network,
        ports,
        chosen,
        CURED,
        frozenset(),
        ChosenInterface("eth0", address, "10.0.0.0/24 is common to all nodes"),
        8,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def launch(*sides: Side, **changes: object) -> Situation:
    kinds = {port.kind for one in sides for port in one.chosen}
    kind = kinds.pop() if len(kinds) == 1 else None
    made = Situation(tuple(sides), kind, (2, 27, 3))
    return replace(made, **changes)  # type: ignore[arg-type]


def found(case: Situation, code: str | None = None) -> list[Finding]:
    return [finding for finding in run_checks(case) if code in (None, finding.code)]


def says(case: Situation, code: str) -> list[tuple[Severity, str | None]]:
    return [(finding.severity, finding.node) for finding in found(case, code)]


def pair(**changes: object) -> tuple[Side, Side]:
    """Two InfiniBand nodes; the changes are of the first one's facts."""
    first = facts("10.0.0.1", **changes)
    return side("a", ib(number=1), network=first), side("b", ib(number=2))


def asking(name: str, **env: str) -> Side:
    """A node with four ports, whose request sets these variables."""
    ports = [ib(f"mlx5_{n}", 10 * ord(name) + n, usable=n in (0, 10)) for n in (0, 1, 10, 11)]
    return side(name, *ports, env={**CURED, **env}, asked=frozenset(env))
