"""Hardware that tests pretend to have: a /sys tree of RDMA ports and PCI GPUs, and an executable that answers as nvidia-smi.

write_sysfs(root, [ib_port("mlx5_0"), roce_port("mlx5_1", "10.1.0.5")])       # LLMGW_SYSFS_ROOT=root
write_nvidia_smi(path, [smi_gpu(0), smi_gpu(1, used=2048)], apps=[smi_app(1, pid=4711, used=2000)])
                                                                              # LLMGW_NVIDIA_SMI=path
write_nvidia_smi(path, hang=True)                       # does not answer; SIGTERM ends it
write_nvidia_smi(path, stdout="No devices were found\n", rc=6)
"""

import ipaddress
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HANG_S = 60  # a fake that was forgotten ends by itself

Gid = tuple[str, str | None, str | None]  # gid, type, netdev; None: reading that file fails
NO_GID = ":".join(["0000"] * 8)


@dataclass(frozen=True)
class FakePort:
    """One port as sysfs shows it; a field that is None is a file that is not there."""

    hca: str
    port: int = 1
    link_layer: str | None = "InfiniBand"
    state: str | None = "4: ACTIVE"
    phys_state: str | None = "5: LinkUp"
    rate: str | None = "400 Gb/sec (4X NDR)"
    lid: str | None = "0x1a"
    gids: tuple[Gid, ...] = ()
    node_type: str | None = "1: CA"
    netdev: str | None = None
    pci: str | None = "0000:18:00.0"
    numa_node: str | None = "0"
    driver: str | None = "mlx5_core"
    is_soft: bool = False  # lives under devices/virtual and has a `parent` file


def ib_port(
    hca: str = "mlx5_0", *, prefix: str = "fe80:0000:0000:0000", **changes: object
) -> FakePort:
    """An ACTIVE InfiniBand port of the given subnet prefix."""
    gid = f"{prefix}:0200:0000:0055:4822"
    return _port(FakePort(hca, gids=((gid, "IB/RoCE v1", None),)), changes)


def roce_port(
    hca: str = "mlx5_0", ip: str | None = "10.1.0.5", *, netdev: str = "ens1", **changes: object
) -> FakePort:
    """An ACTIVE RoCE port whose netdev has that IPv4 address: link-local and IPv4 GIDs, v1 and v2 each. None: no address."""
    local = "fe80:0000:0000:0000:0200:00ff:fe00:0001"
    gids: list[Gid] = [(local, "IB/RoCE v1", netdev), (local, "RoCE v2", netdev)]
    if ip is not None:
        gids += [(ipv4_gid(ip), "IB/RoCE v1", netdev), (ipv4_gid(ip), "RoCE v2", netdev)]
    gids.append((NO_GID, None, None))
    port = FakePort(hca, link_layer="Ethernet", lid="0x0", netdev=netdev, gids=tuple(gids))
    return _port(port, changes)


def ipv4_gid(ip: str) -> str:
    """The GID of an IPv4 address, as sysfs writes it."""
    return ipaddress.IPv6Address(f"::ffff:{ip}").exploded


def write_sysfs(root: Path, ports: Sequence[FakePort] = (), pci_gpus: Sequence[str] = ()) -> Path:
    """A tree for LLMGW_SYSFS_ROOT: these ports, and NVIDIA GPUs at these PCI addresses. Gives back `root`."""
    root.mkdir(parents=True, exist_ok=True)
    for number, port in enumerate(ports):
        _write_port(root, port, number)
    for bus_id in pci_gpus:
        device = root / "bus/pci/devices" / bus_id
        _write(device / "vendor", "0x10de")
        _write(device / "class", "0x030200")
        driver = root / "bus/pci/drivers/nvidia"
        driver.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(driver)
    return root


def _port(port: FakePort, changes: Mapping[str, object]) -> FakePort:
    return FakePort(**{**vars(port), **changes})


def _write_port(root: Path, port: FakePort, number: int) -> None:
    bus_id = port.pci or f"virtual{number}"
    device = root / "devices" / ("virtual" if port.is_soft else "pci0000:00") / bus_id
    hca = device / "infiniband" / port.hca
    link = root / "class/infiniband" / port.hca
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(hca)
    hca.mkdir(parents=True, exist_ok=True)
    _write(hca / "node_type", port.node_type)
    if port.is_soft:
        _write(hca / "parent", port.netdev)
    elif port.pci is not None:
        _write_device(root, device, hca, port)
    _write_port_files(hca / "ports" / str(port.port), port)


def _write_device(root: Path, device: Path, hca: Path, port: FakePort) -> None:
    _write(device / "numa_node", port.numa_node)
    if not (hca / "device").is_symlink():
        (hca / "device").symlink_to(device)
    if port.netdev is not None:
        (device / "net" / port.netdev).mkdir(parents=True, exist_ok=True)
    if port.driver is not None and not (device / "driver").is_symlink():
        driver = root / "bus/pci/drivers" / port.driver
        driver.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(driver)


def _write_port_files(folder: Path, port: FakePort) -> None:
    for name in ("link_layer", "state", "phys_state", "rate", "lid"):
        _write(folder / name, getattr(port, name))
    (folder / "gids").mkdir(parents=True, exist_ok=True)
    for index, (gid, kind, netdev) in enumerate(port.gids):
        _write(folder / "gids" / str(index), gid)
        _write(folder / "gid_attrs/types" / str(index), kind)
        _write(folder / "gid_attrs/ndevs" / str(index), netdev)


def _write(path: Path, text: str | None) -> None:
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")


def smi_gpu(
    index: int = 0,
    *,
    name: str = "NVIDIA H100 80GB HBM3",
    total: int | str = 81559,
    used: int | str = 0,
    **cells: str,
) -> dict[str, str]:
    """One GPU's cells by --query-gpu field. Fields with a dot are given with `__`: memory__used="[N/A]"."""
    gpu = {
        "index": str(index),
        "uuid": gpu_uuid(index),
        "name": name,
        "pci.bus_id": f"00000000:{0x18 + 0x10 * index:02X}:00.0",
        "memory.total": str(total),
        "memory.used": str(used),
        "utilization.gpu": "0",
        "temperature.gpu": "36",
        "power.draw": "71.22",
        "power.limit": "700.00",
        "ecc.errors.uncorrected.volatile.total": "0",
        "compute_mode": "Default",
        "display_active": "Disabled",
        "driver_version": "550.54.15",
        "mig.mode.current": "Disabled",
        "remapped_rows.pending": "No",
        "remapped_rows.failure": "No",
        "compute_cap": "9.0",
        "addressing_mode": "None",
        "fabric.state": "[N/A]",
        "fabric.status": "[N/A]",
        "gpu_recovery_action": "None",
    }
    gpu.update({key.replace("__", "."): cell for key, cell in cells.items()})
    return gpu


def gpu_uuid(index: int) -> str:
    """The uuid that `smi_gpu(index)` has."""
    return f"GPU-{index:08x}-aaaa-bbbb-cccc-{index:012x}"


def smi_app(gpu: int, pid: int, *, name: str = "python3", used: int | str = 1024) -> dict[str, str]:
    """One row of --query-compute-apps on the GPU of that index."""
    return {
        "gpu_uuid": gpu_uuid(gpu),
        "pid": str(pid),
        "process_name": name,
        "used_gpu_memory": str(used),
    }


def write_nvidia_smi(
    path: Path,
    gpus: Sequence[Mapping[str, str]] = (),
    *,
    apps: Sequence[Mapping[str, str]] = (),
    hang: bool = False,
    ignore_sigterm: bool = False,
    delay_s: float = 0.0,
    rc: int | None = None,
    stdout: str | None = None,
    stderr: str = "",
    unknown_fields: Sequence[str] = (),
    lost: Sequence[str] = (),
    cuda_version: str | None = "12.4",
    listed: str = "",
    knows_help: bool = False,
) -> Path:
    """An executable that answers as nvidia-smi would. It may be written anew while it is in use.

    Args:
        stdout: say exactly this to whatever is asked, and exit with `rc`.
        unknown_fields: refused as an older driver does: exit 2 and no row.
        lost: bus ids ("0000:3b:00.0") off the bus: without -i only a message comes, no row.
        cuda_version: of --version; None: it does not know that option.
        listed: what -L says.
        knows_help: --help-query-gpu lists the fields of the first GPU that are not unknown.
    """
    state = {
        "gpus": [dict(gpu) for gpu in gpus],
        "apps": [dict(app) for app in apps],
        "hang_s": HANG_S if hang else 0,
        "ignore_sigterm": ignore_sigterm,
        "delay_s": delay_s,
        "rc": rc,
        "stdout": stdout,
        "stderr": stderr,
        "unknown_fields": list(unknown_fields),
        "lost": list(lost),
        "cuda_version": cuda_version,
        "listed": listed,
        "knows_help": knows_help,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    head = f"#!{sys.executable} -IS\nSTATE = {json.dumps(state)!r}\n"
    fresh.write_text(head + _SCRIPT, encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(path)
    return path


_SCRIPT = r"""
import json, signal, sys, time

state = json.loads(STATE)
if state["ignore_sigterm"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(state["hang_s"] or state["delay_s"])


def end(text, rc):
    sys.stdout.write(text)
    sys.stderr.write(state["stderr"])
    sys.stdout.flush()
    sys.exit(rc if state["rc"] is None else state["rc"])


def option(*names):
    args = sys.argv[1:]
    for number, arg in enumerate(args):
        for name in names:
            if arg.startswith(name + "="):
                return arg[len(name) + 1:]
            if arg == name and number + 1 < len(args):
                return args[number + 1]
    return None


def bus(text):
    return text.lower()[-12:]


def rows(records, fields):
    return "".join(", ".join(r.get(f, "[N/A]") for f in fields) + "\n" for r in records)


if state["stdout"] is not None:
    end(state["stdout"], 0)
if "--version" in sys.argv:
    if state["cuda_version"] is None:
        end("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n", 2)
    driver = state["gpus"][0]["driver_version"] if state["gpus"] else "550.54.15"
    end("NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\n"
        "CUDA Version        : %s\n" % (driver, driver[:6], driver, state["cuda_version"]), 0)
if "-L" in sys.argv:
    end(state["listed"], 0)
if "--help-query-gpu" in sys.argv:
    known = [f for f in state["gpus"][0] if f not in state["unknown_fields"]] if state["knows_help"] else []
    end("".join('"%s"\nA field.\n\n' % f for f in known), 0)
wanted = option("-i", "--id")
gpus = [g for g in state["gpus"] if bus(g["pci.bus_id"]) not in state["lost"]]
if wanted is not None:
    names = [bus(w) for w in wanted.split(",")]
    gpus = [g for g in gpus if bus(g["pci.bus_id"]) in names or g["index"] in names]
    if not gpus:
        end("Unable to determine the device handle for gpu %s: Unknown Error\n" % wanted, 255)
elif state["lost"]:
    end("Unable to determine the device handle for GPU%d: %s: GPU is lost.  Reboot the system to recover this GPU\n"
        % (len(gpus), state["lost"][0].upper()), 15)
asked = option("--query-gpu")
if asked is not None:
    fields = asked.split(",")
    for field in fields:
        if field in state["unknown_fields"]:
            end('Field "%s" is not a valid field to query.\n\n' % field, 2)
    if not gpus:
        end("No devices were found\n", 6)
    end(rows(gpus, fields), 0)
asked = option("--query-compute-apps")
if asked is not None:
    end(rows(state["apps"], asked.split(",")), 0)
end("", 0)
"""
