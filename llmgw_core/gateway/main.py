"""`llmgw gateway` in the foreground: SIGTERM and SIGINT drain it, a second one ends it at once, SIGHUP reloads."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from llmgw_core.errors import LlmgwError
from llmgw_core.gateway.service import Gateway
from llmgw_core.gateway.settings import Settings

EXIT_FORCED = 130


async def serve(load: Callable[[], Settings], say: Callable[[str], None]) -> int:
    """Serve until told to end. Returns the exit status.

    Args:
        load: reads the settings, now and at each SIGHUP.
        say: tells a person one line.

    Raises:
        LlmgwError: it cannot start.
    """
    settings = load()
    ending: asyncio.Queue[bool] = asyncio.Queue()
    async with Gateway(settings) as gateway:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ending.put_nowait, True)
        loop.add_signal_handler(signal.SIGHUP, _reload, gateway, load, say)
        scheme = "http" if settings.tls_certificate is None else "https"
        say(f"llmgw gateway: {scheme}://{settings.host}:{gateway.port}, admin at {gateway.socket}")
        _warn(settings, say)
        await ending.get()
        say(f"llmgw gateway: draining, at most {settings.drain_s:g} s; once more ends it at once")
        return await _drain(gateway, ending)


async def _drain(gateway: Gateway, ending: "asyncio.Queue[bool]") -> int:
    draining = asyncio.create_task(gateway.drain())
    hurry = asyncio.create_task(ending.get())
    await asyncio.wait((draining, hurry), return_when=asyncio.FIRST_COMPLETED)
    is_done = draining.done()
    for task in (draining, hurry):
        task.cancel()
    await asyncio.gather(draining, hurry, return_exceptions=True)
    return 0 if is_done else EXIT_FORCED


def _reload(gateway: Gateway, load: Callable[[], Settings], say: Callable[[str], None]) -> None:
    try:
        gateway.reload(load())
    except LlmgwError as error:
        say(f"llmgw gateway: not reloaded, all stays as it was: {error}")
    else:
        say("llmgw gateway: reloaded")


def _warn(settings: Settings, say: Callable[[str], None]) -> None:
    if settings.allow_anonymous and not settings.is_loopback:
        say(f"llmgw gateway: anybody who reaches {settings.host} may use the engines without a key")
    if settings.tls_certificate is None and not settings.is_loopback:
        say("llmgw gateway: without TLS, keys and prompts cross the network in the clear")


def run(load: Callable[[], Settings], say: Callable[[str], None]) -> int:
    """`serve` on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        factory: Callable[[], Any] | None = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(serve(load, say))
