"""What each node's ranks are told of the interface where they meet, and of the adapters of libraries that do not ask NCCL. Pure.

Source: NCCL docs/env.rst, src/misc/socket.cc; pytorch/gloo gloo/transport/tcp/device.cc (names are compared whole);
UCX ucp/core; NVSHMEM src/host/env_defs.h.
"""

from collections.abc import Sequence
from ipaddress import ip_address

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.fabric import ipv4_of
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.planning.fabric_verdicts import label
from llmgw_core.planning.interfaces import ChosenInterface
from llmgw_core.planning.network_env import Setting

_HOST_IP = {EngineKind.VLLM: "VLLM_HOST_IP", EngineKind.SGLANG: "SGLANG_HOST_IP"}


def interface_settings(
    chosen: ChosenInterface,
    engine: EngineKind,
    ports: Sequence[Port] = (),
    *,
    kv_transfer: bool = False,
    deepep: bool = False,
) -> tuple[Setting, ...]:
    """The variables of one node's ranks.

    Args:
        ports: of the launch's fabric on this node.
        kv_transfer: NIXL moves the KV cache, by UCX.
        deepep: experts exchange tokens by DeepEP, over NVSHMEM.
    """
    name, address = chosen.interface, chosen.address
    found = [
        Setting("NCCL_SOCKET_IFNAME", f"={name}", f"{chosen.reason}; without = it is a prefix"),
        Setting("GLOO_SOCKET_IFNAME", name, "torch would take what the host name resolves to"),
        Setting(
            _HOST_IP[engine], address, "the engine would take what the default route leaves by"
        ),
    ]
    if ip_address(address).version == 6:  # noqa: PLR2004 - of IP
        why = f"{name} is reached by IPv6, and NCCL takes the interface's first address"
        found.append(Setting("NCCL_SOCKET_FAMILY", "AF_INET6", why))
    if kv_transfer:
        devices = ",".join([*map(label, ports), name])
        why = "UCX does not read NCCL_IB_HCA; its list holds TCP devices too"
        found.append(Setting("UCX_NET_DEVICES", devices, why))
    if deepep and ports:
        found += _tell_nvshmem(name, ports)
    return tuple(found)


def _tell_nvshmem(name: str, ports: Sequence[Port]) -> list[Setting]:
    listed = ",".join(map(label, ports))
    found = [
        Setting("NVSHMEM_HCA_LIST", listed, "NVSHMEM does not read NCCL_IB_HCA"),
        Setting("NVSHMEM_ENABLE_NIC_PE_MAPPING", "1", "without it NVSHMEM ignores the list"),
        Setting("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", name, "NVSHMEM does not read NCCL's"),
    ]
    if ports[0].kind is not PortKind.ROCE:
        return found
    indices = {port.gid_index for port in ports}
    index = indices.pop() if len(indices) == 1 else None
    if index is not None:
        why = (
            "NVSHMEM would take index 0; the routable RoCE v2 address is at this one on every port"
        )
        return [*found, Setting("NVSHMEM_IB_GID_INDEX", str(index), why)]
    is_v4 = all(ipv4_of(port.gid) is not None for port in ports)
    family, area = ("AF_INET", "0.0.0.0/0") if is_v4 else ("AF_INET6", "::/0")
    why = "the ports' addresses are at unequal indices: it has to look for them"
    return [
        *found,
        Setting("NVSHMEM_IB_ADDR_FAMILY", family, why),
        Setting("NVSHMEM_IB_ADDR_RANGE", area, "its default fits IPv6 alone"),
    ]
