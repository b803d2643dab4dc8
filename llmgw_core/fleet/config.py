"""Which nodes there are: cluster.toml, `--nodes`, or this machine alone.

`Target` and the choice between the sources need the standard library alone, so that the inventory of this machine
loads neither pydantic nor ClusterShell; `cluster_file` reads the file.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmgw_core.errors import ConfigError, UsageError

CLUSTER_VARIABLE = "LLMGW_CLUSTER"
_WHERE_TO_NAME_A_CLUSTER = f"name it with --cluster FILE or ${CLUSTER_VARIABLE}"


@dataclass(frozen=True)
class Target:
    """One node and how it is reached. None in a field: ssh_config's word, or the built-in choice.

    A target without an address is this machine, reached without SSH.
    """

    name: str
    address: str | None = (
        None  # what ssh is given: a host name, an address, or an alias of ssh_config
    )
    user: str | None = None
    port: int | None = None
    python: str | None = None  # the node's Python for the agent
    venv: str | None = None  # directory of the engine's virtual environment on the node
    fabric: str | None = None  # what the operator says; wins over what was discovered
    exclude_ports: tuple[str, ...] = ()  # HCAs, or ports as `mlx5_3:1`, that engines must not use
    cluster_address: str | None = None  # the IP address by which other nodes come to its ranks
    interface: str | None = None  # the network interface of that address
    identity_file: str | None = None
    jump: str | None = None  # as ssh -J takes it: user@host:port,…
    transport: str | None = None  # "openssh": by the system's ssh
    env: Mapping[str, str] = field(default_factory=dict)  # for the agent; no place for secrets


def this_machine() -> Target:
    """The machine this runs on, without SSH, by its host name."""
    return Target(platform.node() or "localhost")


def load_cluster(path: Path) -> tuple[Target, ...]:
    """Return the nodes of a cluster file in natural order of names.

    Raises:
        ConfigError: with the file, the line, the key, and what is allowed.
    """
    from llmgw_core.fleet.cluster_file import read_cluster_file

    return read_cluster_file(path).targets


def targets_from_nodeset(text: str) -> tuple[Target, ...]:
    """Return one target for each node of an ad hoc set, e.g. `gpu[01-16],root@head:2222`.

    A node is named by its host; where two share a host (containers behind two ports), by host:port.

    Raises:
        UsageError: the set cannot be read, or names one host and port with two users.
    """
    return _targets_of(text, known=(), defaults=Target(""))


def select_targets(
    cluster: Path | None, nodes: str | None, environ: Mapping[str, str]
) -> tuple[Target, ...]:
    """Return the nodes to work on, in natural order.

    The cluster file is `cluster`, else $LLMGW_CLUSTER, else ~/.config/llmgw/cluster.toml if it is there. With `nodes`
    those alone: a name the file knows is taken as the file says, any other is reached ad hoc with the file's
    defaults. With neither file nor `nodes`: this machine.

    Raises:
        UsageError: a file or a set that cannot be read.
    """
    path = find_cluster_file(cluster, environ)
    if path is None:
        return targets_from_nodeset(nodes) if nodes is not None else (this_machine(),)
    from llmgw_core.fleet.cluster_file import read_cluster_file

    content = read_cluster_file(path)
    if nodes is None:
        return content.targets
    return _targets_of(nodes, content.targets, content.defaults)


def find_cluster_file(cluster: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the cluster file in force; None: there is none.

    Raises:
        ConfigError: a file that was named is not there.
    """
    named = cluster or (Path(environ[CLUSTER_VARIABLE]) if environ.get(CLUSTER_VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            origin = "--cluster" if cluster else f"${CLUSTER_VARIABLE}"
            raise ConfigError(f"{named} is no file", f"{origin} names it", _WHERE_TO_NAME_A_CLUSTER)
        return named
    home = environ.get("HOME")
    base = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    default = Path(base, "llmgw", "cluster.toml") if base else None
    return default if default is not None and default.is_file() else None


def _targets_of(text: str, known: Sequence[Target], defaults: Target) -> tuple[Target, ...]:
    from llmgw_core.fleet.nodesets import parse_endpoints

    by_name = {target.name: target for target in known}
    endpoints = parse_endpoints(text)
    hosts = [endpoint.host for endpoint in endpoints]
    targets: dict[str, Target] = {}
    for endpoint in endpoints:
        shared = hosts.count(endpoint.host) > 1 and endpoint.port is not None
        name = f"{endpoint.host}:{endpoint.port}" if shared else endpoint.host
        if name in targets:
            raise UsageError(
                f"--nodes names {name} twice",
                "with different users or ports",
                "a node has one user: keep one of them",
            )
        base = by_name.get(endpoint.host, replace(defaults, address=endpoint.host))
        targets[name] = replace(
            base, name=name, user=endpoint.user or base.user, port=endpoint.port or base.port
        )
    return tuple(targets.values())
