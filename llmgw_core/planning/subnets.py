"""InfiniBand subnets of one prefix, told apart by what a subnet has only once, or must have in common. Pure.

A LID is given once in a subnet, and nodes of which none is a full member of the other's partition do not hear each other.
Each node is put in the first subnet that nothing speaks against. With many subnets, asking each would take a time that
grows with the square of the nodes: so places are bits of a number, and each LID and partition knows its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from llmgw_core.domain.hardware import Port
from llmgw_core.planning.fabric_verdicts import lids_of
from llmgw_core.planning.partitions import FULL_MEMBER, read_pkey

_Identity = tuple[object, ...]
_Table = tuple[str, ...]


@dataclass
class _Tables:
    """The partition tables of ports, and in which subnets each is. Bits are numbers of tables, in `_places` of subnets."""

    _numbers: dict[_Table, int] = field(default_factory=dict)
    _places: list[int] = field(default_factory=list)  # by number
    _telling_nothing: int = 0
    _with: dict[int, int] = field(default_factory=dict)  # by partition: tables that have it …
    _with_full: dict[int, int] = field(default_factory=dict)  # … as a full member

    def find_refusing(self, own: set[_Table]) -> int:
        """The subnets with a table that shares no partition with any of these."""
        heard = self._telling_nothing
        for table in own:
            keys = _read_keys(table)
            if not keys:
                return 0
            for key in keys:
                found = self._with if key & FULL_MEMBER else self._with_full
                heard |= found.get(key & ~FULL_MEMBER, 0)
        refusing = 0
        for number in _bits_of(~heard & ((1 << len(self._places)) - 1)):
            refusing |= self._places[number]
        return refusing

    def add(self, own: set[_Table], bit: int) -> None:
        """The tables are in the subnet of that bit."""
        for table in own:
            number = self._numbers.setdefault(table, len(self._places))
            if number == len(self._places):
                self._places.append(0)
                self._index(_read_keys(table), 1 << number)
            self._places[number] |= bit

    def _index(self, keys: Sequence[int], bit: int) -> None:
        if not keys:
            self._telling_nothing |= bit
        for key in keys:
            partition = key & ~FULL_MEMBER
            self._with[partition] = self._with.get(partition, 0) | bit
            if key & FULL_MEMBER:
                self._with_full[partition] = self._with_full.get(partition, 0) | bit


@dataclass
class Subnets:
    """The subnets of one fabric key, in the order in which they were met. Bits are numbers of subnets."""

    _with_lid: dict[int, int] = field(default_factory=dict)
    _with_port: dict[_Identity, int] = field(default_factory=dict)
    _owners: dict[tuple[int, int], _Identity] = field(default_factory=dict)  # by subnet and LID
    _tables: _Tables = field(default_factory=_Tables)

    def place(self, ports: Sequence[Port]) -> int:
        """Put a node with these ports where nothing speaks against it. Returns the subnet's number, mostly 0."""
        tables = {port.pkeys for port in ports}
        refused = self._tables.find_refusing(tables)
        lids = [(lid, _identify(port)) for port in ports for lid in lids_of(port)]
        for lid, identity in lids:
            refused |= self._find_taken(lid, identity)
        place = _first_clear_bit(refused)
        bit = 1 << place
        for lid, identity in lids:
            self._with_lid[lid] = self._with_lid.get(lid, 0) | bit
            self._with_port[identity] = self._with_port.get(identity, 0) | bit
            self._owners[(place, lid)] = identity
        self._tables.add(tables, bit)
        return place

    def _find_taken(self, lid: int, identity: _Identity) -> int:
        """Where another port has the LID."""
        taken = self._with_lid.get(lid, 0)
        for place in _bits_of(taken & self._with_port.get(identity, 0)):
            # Seen before: a machine that goes by two names.
            if self._owners[(place, lid)] == identity:
                taken ^= 1 << place
        return taken


def _identify(port: Port) -> _Identity:
    """Equal for two readings of one port; a port without a GID is like no other."""
    return (port.gid, port.node_guid) if port.gid is not None else (object(),)


def _first_clear_bit(bits: int) -> int:
    return (~bits & (bits + 1)).bit_length() - 1


def _bits_of(bits: int) -> Iterator[int]:
    while bits:
        number = bits.bit_length() - 1
        yield number
        bits ^= 1 << number


def _read_keys(table: _Table) -> list[int]:
    return [key for key in map(read_pkey, table) if key]
