"""What one rank of several is told of the others: addresses and ports. Pure."""

from dataclasses import dataclass

# Places in the launch's block of ports. SGLang takes six more after its first by itself.
RENDEZVOUS, DATA_PARALLEL, FOLLOWER_HTTP, NCCL, GANG = 0, 8, 9, 10, 11
SGLANG_DERIVED = 6


@dataclass(frozen=True)
class Seat:
    """One rank's place among several."""

    rank: int
    ranks: int
    address: str  # of its node towards its peers: IPv4 or IPv6
    head: str  # the address of rank 0
    block: int  # the first of the launch's ports

    @property
    def head_port(self) -> int:
        """Where the ranks meet."""
        return self.block + RENDEZVOUS

    @property
    def is_head(self) -> bool:
        """Whether this rank serves."""
        return self.rank == 0


def join_address(address: str, port: int) -> str:
    """`10.0.0.1:29501`, `[fd00::1]:29501`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
