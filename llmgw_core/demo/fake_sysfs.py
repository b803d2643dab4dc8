"""A /sys with the RDMA ports and GPUs of a node that is not there: what LLMGW_SYSFS_ROOT may point to."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_NO_GID = ":".join(["0000"] * 8)
_NVIDIA_VENDOR = "0x10de"
_GPU_CLASS = "0x030200"  # 3D controller
_MELLANOX_VENDOR = "0x15b3"

Gid = tuple[str, str, str | None]  # gid, type, netdev


@dataclass(frozen=True)
class FakePort:
    """One adapter with one port, ACTIVE unless `state` says otherwise."""

    hca: str
    link_layer: str  # "InfiniBand", "Ethernet"
    gids: tuple[Gid, ...]
    pci_bus_id: str
    numa_node: int = 0
    lid: int = 0  # 0 on Ethernet
    rate: str = "400 Gb/sec (4X NDR)"
    state: str = "4: ACTIVE"
    phys_state: str = "5: LinkUp"
    netdev: str | None = None


def infiniband_ports(count: int, node: int, subnet: int) -> tuple[FakePort, ...]:
    """Return the ports of `count` NDR adapters, mlx5_0 and on, of one subnet.

    Args:
        node: a number that no other node of the subnet has; makes GIDs and LIDs differ.
        subnet: 64-bit prefix, as the subnet manager gives it.
    """
    prefix = ipaddress.IPv6Address(subnet << 64)
    return tuple(
        FakePort(
            hca=f"mlx5_{rail}",
            link_layer="InfiniBand",
            gids=((_gid(int(prefix) | 0xB8CEF60300000000 | node << 8 | rail), "IB/RoCE v1", None),),
            pci_bus_id=f"0000:{0x19 + 0x10 * rail:02x}:00.0",
            numa_node=rail * 2 // count,
            lid=node * 16 + rail + 1,
            netdev=f"ib{rail}",
        )
        for rail in range(count)
    )


def roce_ports(addresses: Sequence[str]) -> tuple[FakePort, ...]:
    """Return one RoCE port for each IPv4 address, with the GIDs that Linux makes of it: v1 and v2, link-local first."""
    ports = []
    for rail, address in enumerate(addresses):
        netdev = f"ens{rail + 1}f0np0"
        local = _gid(0xFE80 << 112 | 0x0200_00FF_FE00_0000 | rail + 1)
        mapped = _gid(int(ipaddress.IPv6Address(f"::ffff:{address}")))
        kinds = ("IB/RoCE v1", "RoCE v2")
        gids: list[Gid] = [(gid, kind, netdev) for gid in (local, mapped) for kind in kinds]
        ports.append(
            FakePort(
                hca=f"mlx5_{rail}",
                link_layer="Ethernet",
                gids=(*gids, (_NO_GID, "", None)),
                pci_bus_id=f"0000:{0x21 + 0x20 * rail:02x}:00.0",
                numa_node=rail * 2 // len(addresses),
                rate="200 Gb/sec (4X HDR)",
                netdev=netdev,
            )
        )
    return tuple(ports)


def write_sysfs(root: Path, ports: Sequence[FakePort], gpu_bus_ids: Sequence[str]) -> None:
    """Write the tree: these ports, and an NVIDIA GPU at each of these addresses ("0000:18:00.0")."""
    root.mkdir(parents=True, exist_ok=True)
    for port in ports:
        _write_port(root, port)
    for bus_id in gpu_bus_ids:
        device = root / "bus/pci/devices" / bus_id
        _write(device / "vendor", _NVIDIA_VENDOR)
        _write(device / "class", _GPU_CLASS)
        _link_driver(root, device, "nvidia")


def _write_port(root: Path, port: FakePort) -> None:
    device = root / "devices/pci0000:00" / port.pci_bus_id
    hca = device / "infiniband" / port.hca
    _write(hca / "node_type", "1: CA")
    _write(device / "numa_node", str(port.numa_node))
    _write(device / "vendor", _MELLANOX_VENDOR)
    _link_driver(root, device, "mlx5_core")
    (hca / "device").symlink_to(device)
    if port.netdev is not None:
        (device / "net" / port.netdev).mkdir(parents=True)
    link = root / "class/infiniband" / port.hca
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(hca)
    folder = hca / "ports/1"
    for name in ("link_layer", "state", "phys_state", "rate"):
        _write(folder / name, getattr(port, name))
    _write(folder / "lid", f"0x{port.lid:x}")
    for index, (gid, kind, netdev) in enumerate(port.gids):
        _write(folder / "gids" / str(index), gid)
        # Slots that hold no GID cannot be read for their type and netdev.
        if kind:
            _write(folder / "gid_attrs/types" / str(index), kind)
        if netdev is not None:
            _write(folder / "gid_attrs/ndevs" / str(index), netdev)


def _link_driver(root: Path, device: Path, name: str) -> None:
    driver = root / "bus/pci/drivers" / name
    driver.mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(driver)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def _gid(number: int) -> str:
    return ipaddress.IPv6Address(number).exploded
