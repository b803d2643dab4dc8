"""`python -m benchmarks.many_agents SOCKET COUNT`: that many simulated nodes behind one Unix socket, until stdin closes.

The agent's own connections and samplers speak, over nodes whose GPUs and ports change every second. A console says which node it wants
in a first line, as ssh would by an address, and is answered as by a shell where the agent is in place.
"""

import asyncio
import random
import re
import sys
from pathlib import Path

from benchmarks.clusters import make_node
from llmgw_core.agent.connection import Connection
from llmgw_core.agent.protocol import PROTOCOL_MAX, PROTOCOL_MIN, Hello
from llmgw_core.agent.rpc import Request
from llmgw_core.agent.sampler import Sampler
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.fleet.changes import with_values

INTERVAL_S = 1.0
_NONCE = re.compile(rb" ([0-9a-f]{16}) [0-9a-f]{16} ;;")


class _Silent:
    """Where the agent's log would be."""

    def write(self, event: str, **facts: object) -> None:
        """Nobody reads it."""


class Agent:
    """One node's daemon, as far as a console that looks can tell."""

    def __init__(self, number: int) -> None:
        self.node = make_node(number)
        self.log = _Silent()
        self.sampler = Sampler(self._read, self.log)  # type: ignore[arg-type]
        self.hello = Hello(
            (PROTOCOL_MIN, PROTOCOL_MAX),
            *("0.0.0", "0" * 16, self.node.name, "m", "b", "n"),
            *(0, "root", "3.11.7", "/", 1, "2026-01-01T00:00:00Z"),
        )
        self._rng = random.Random(number)  # noqa: S311 - a load, no secret
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, request: Request) -> object:
        """An inventory, whatever is asked."""
        del request
        return to_jsonable(self.node)

    def end(self, why: str) -> None:
        """Nothing here ends."""

    async def change(self, wait_s: float) -> None:
        """Let time go by on a busy node."""
        sampling = asyncio.create_task(self.sampler.run())
        await asyncio.sleep(wait_s)
        while not sampling.done():
            self.node = _work(self.node, self._rng)
            self.sampler.hurry()
            await asyncio.sleep(INTERVAL_S)

    async def _read(self, max_age_s: float) -> Node:
        del max_age_s
        return self.node


def _work(node: Node, rng: random.Random) -> Node:
    gpus = tuple(
        with_values(
            gpu,
            memory_used_mib=70000 + rng.randrange(2000),
            utilization_percent=rng.randrange(101),
            temperature_celsius=55 + rng.randrange(20),
            power_watts=round(350 + 350 * rng.random(), 2),
        )
        for gpu in node.gpus
    )
    ports = tuple(
        with_values(
            port, rx_gbps=round(390 * rng.random(), 3), tx_gbps=round(390 * rng.random(), 3)
        )
        for port in node.ports
    )
    host = with_values(node.host, load_1m=round(20 * rng.random(), 2))
    return with_values(node, gpus=gpus, ports=ports, host=host)


async def serve(path: Path, count: int) -> None:
    """Until stdin closes."""
    agents = [Agent(number + 1) for number in range(count)]
    changes = [
        asyncio.create_task(agent.change(INTERVAL_S * place / count))
        for place, agent in enumerate(agents)
    ]

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = int(await reader.readline())
        script = await reader.readuntil(b"exit 1\n}\n")
        nonce = _NONCE.search(script)
        assert nonce is not None
        writer.write(b'LLMGW1 %s {"ok": true, "have": true}\n' % nonce[1])
        assert await reader.readline() == b"run\n"
        writer.write(b'LLMGW1 %s {"ok": true}\n' % nonce[1])
        await Connection(agents[number], reader, writer, 0).serve()

    server = await asyncio.start_unix_server(greet, path, backlog=count, limit=1 << 20)
    print("listening", flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)
    for task in changes:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
