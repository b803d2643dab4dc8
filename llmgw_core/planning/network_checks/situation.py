"""What the checks look at: each node of a launch, and how its ranks are to meet. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llmgw_core.domain.fabric import OTHER_FABRIC, OTHER_NETWORK, is_capable
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.network import Interface, NodeNetwork
from llmgw_core.planning.interfaces import ChosenInterface

MOST_TOLD = 6
_ELSEWHERE = (OTHER_FABRIC, OTHER_NETWORK)
THE_REQUEST = "the request's env"


@dataclass(frozen=True)
class Side:
    """One node of a launch."""

    name: str
    network: NodeNetwork | None  # None: it did not tell
    ports: tuple[Port, ...] = ()
    chosen: tuple[Port, ...] = ()  # those of the launch's fabric
    env: Mapping[str, str] = field(default_factory=dict)  # what its ranks get, all of it
    asked: frozenset[str] = frozenset()  # names in `env` whose value is the operator's, not ours
    interface: ChosenInterface | None = None
    gpu_count: int = 0  # that the launch takes here
    boot_id: str | None = None  # equal on two nodes: they are one machine

    @property
    def candidates(self) -> tuple[Port, ...]:
        """The chosen ports; where no fabric is common, all that could be used."""
        return self.chosen or tuple(port for port in self.ports if is_capable(port))

    @property
    def able_count(self) -> int:
        """How many ports it has for engines, of whatever fabric."""
        return sum(
            port.usable or (port.excluded is not None and port.excluded.code in _ELSEWHERE)
            for port in self.ports
        )

    def list_interfaces(self) -> tuple[Interface, ...]:
        """Its interfaces; empty where they are not known."""
        return (self.network.interfaces if self.network else None) or ()

    def list_settings(self) -> Iterator[tuple[str, str, str]]:
        """(name, value, where it stands) of what engines will get and llmgw did not write: the request's, NCCL's files."""
        seen = set(self.env)
        for name in sorted(self.asked):
            yield name, self.env.get(name, ""), THE_REQUEST
        for conf in (self.network.conf_files if self.network else None) or ():
            for name, value in conf.settings.items():
                if name not in seen:
                    seen.add(name)
                    yield name, value, conf.path

    def get_setting(self, name: str) -> tuple[str, str] | None:
        """The value and where it stands, of those of `list_settings`."""
        return next(((v, where) for n, v, where in self.list_settings() if n == name), None)


@dataclass(frozen=True)
class Situation:
    """One launch."""

    sides: tuple[Side, ...]
    kind: PortKind | None = None  # by which ranks on different nodes meet; None: TCP
    nccl: tuple[int, ...] | None = None  # None: unknown
    is_single: bool = False  # one node alone: its ranks need no network
    wants_tcp: bool = False  # the operator asked for it
    wants_kv_transfer: bool = False
    wants_deepep: bool = False

    @property
    def wants_rdma(self) -> bool:
        """Whether adapters matter at all."""
        return not self.is_single and not self.wants_tcp

    def is_nccl_before(self, *version: int) -> bool:
        """Whether the NCCL there is known to be older."""
        return self.nccl is not None and self.nccl[: len(version)] < version


def tell(  # noqa: PLR0917 - in the order of a Finding's fields
    code: str, severity: Severity, side: Side | None, part: str, what: str, fix: str = ""
) -> Finding:
    """A finding about a part of a node, or of the launch."""
    name = side.name if side else None
    return Finding(code, severity, f"{name} {part}" if name else part, what, fix, name)


def join(words: list[str] | tuple[str, ...]) -> str:
    """`a, b, c and 4 more`."""
    more = len(words) - MOST_TOLD
    return ", ".join(words[:MOST_TOLD]) + (f" and {more} more" if more > 0 else "")
