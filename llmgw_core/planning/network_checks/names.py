"""Whether the node's own name leads to itself. Pure."""

from collections.abc import Iterator
from ipaddress import ip_address

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.planning.network_checks.situation import Side, Situation, join, tell

CODE = "hostname-loopback"


def check_hostname(case: Situation) -> Iterator[Finding]:
    """torch advertises what the host name resolves to, unless GLOO_SOCKET_IFNAME says otherwise."""
    if case.is_single:
        return
    for side in case.sides:
        what = _find_trouble(side)
        if what is None:
            continue
        if "GLOO_SOCKET_IFNAME" in side.env:
            yield tell(
                CODE, Severity.INFO, side, "host name", f"{what}; GLOO_SOCKET_IFNAME is set instead"
            )
        else:
            fix = "put its address in /etc/hosts, or set GLOO_SOCKET_IFNAME and VLLM_HOST_IP"
            yield tell(CODE, Severity.ERROR, side, "host name", what, fix)


def _find_trouble(side: Side) -> str | None:
    network = side.network
    if network is None or network.hostname is None:
        return None
    if network.hostname.partition(".")[0] == "localhost":
        return "it is localhost: other nodes are sent to themselves"
    addresses = network.hostname_addresses
    if addresses is None:
        return None if not network.unread else _find_slow(network.unread, network.hostname)
    if not addresses:
        return f"{network.hostname} does not resolve"
    own = {one.address for item in side.list_interfaces() for one in item.addresses}
    able = [text for text in addresses if not _is_loopback(text)]
    if not able:
        return (
            f"{network.hostname} resolves to {join(addresses)}: peers would be sent to themselves"
        )
    if own and not set(able) & own:
        return f"{network.hostname} resolves to {join(able)}, which no interface here holds"
    return None


def _find_slow(unread: tuple[str, ...], name: str) -> str | None:
    is_slow = any(text.startswith("hostname_addresses") for text in unread)
    return f"{name} did not resolve within some seconds" if is_slow else None


def _is_loopback(text: str) -> bool:
    try:
        return ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False
