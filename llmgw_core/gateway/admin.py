"""What an operator may see and do while the gateway runs: /admin on a Unix socket of his own, or with an admin key.

GET /admin/queue, with ?tenants=N of all models those N that matter most; POST /admin/pause, /admin/resume, /admin/drain with {"model"}, {"tenant"} or {"engine"}.
"""

import asyncio
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from aiohttp import web

from llmgw_core.agent.gateways import is_safe, list_folders
from llmgw_core.errors import GatewayError
from llmgw_core.gateway.gate import Gates
from llmgw_core.gateway.metrics import CONTENT_TYPE, Metrics
from llmgw_core.gateway.picture import Rates, draw_queue
from llmgw_core.gateway.replies import Refused, reply_error

MAX_BODY_BYTES = 64 << 10
_VERBS = {
    "pause": ("model", "tenant"),
    "resume": ("model", "tenant", "engine"),
    "drain": ("model", "engine"),
}


class Admin:
    """Answers /admin."""

    def __init__(
        self, gates: Gates, rates: Rates, metrics: Metrics, is_draining: Callable[[], bool]
    ) -> None:
        self._gates = gates
        self._rates = rates
        self._metrics = metrics
        self._is_draining = is_draining
        self.identity: dict[str, object] = {
            "id": secrets.token_hex(8),
            "address": "",  # set once it listens
            "pid": os.getpid(),
            "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request of somebody who may."""
        try:
            return await self._answer(request)
        except Refused as error:
            return reply_error(error, request.path, "-")

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET" and request.path == "/metrics":
            return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})
        if request.method == "GET" and request.path == "/admin/queue":
            now = asyncio.get_running_loop().time()
            state = draw_queue(self._gates, self._rates, now, _most(request.query.get("tenants")))
            state["gateway"] = self.identity
            state["draining"] = self._is_draining()
            return _json(state)
        verb = request.path.removeprefix("/admin/")
        if request.method != "POST" or verb not in _VERBS:
            raise Refused(404, "not_found", f"there is no {request.path[:200]} here")
        kind, name = _parse(await _read(request), _VERBS[verb])
        self._do(verb, kind, name)
        return _json({"ok": True, "done": verb, kind: name})

    def _do(self, verb: str, kind: str, name: str) -> None:
        """Pause keeps requests waiting; drain serves those that wait and takes no new ones; resume ends both."""
        gates = self._gates
        if kind == "tenant":
            gates.pause_tenant(name, is_paused=verb == "pause")
        elif kind == "model":
            queue = next((item for item in gates.queues if item.model == name), None)
            if queue is None:
                raise Refused(404, "model_not_found", f"there is no model {name!r} here")
            queue.is_paused = verb == "pause"
            queue.is_draining = verb == "drain"
        else:
            found = [item for item in gates.table.replicas if name in (item.name, item.url)]
            if not found:
                raise Refused(404, "engine_not_found", f"there is no engine {name!r} here")
            for replica in found:
                replica.is_draining = verb == "drain"
        gates.review()


def _most(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 9:  # noqa: PLR2004 - more than anybody has
        raise Refused(400, "invalid_value", "tenants is a number", param="tenants")
    return int(text)


async def _read(request: web.BaseRequest) -> bytes:
    data = b""
    while piece := await request.content.readany():
        data += piece
        if len(data) > MAX_BODY_BYTES:
            raise Refused(413, "body_too_large", "the body is too large")
    return data


def _parse(body: bytes, kinds: tuple[str, ...]) -> tuple[str, str]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    named = {key: data[key] for key in kinds if key in data} if isinstance(data, dict) else {}
    if len(named) != 1 or not all(isinstance(value, str) and value for value in named.values()):
        raise Refused(400, "invalid_value", f"send a JSON object with one of {', '.join(kinds)}")
    return next(iter(named.items()))


def name_socket(port: int, environ: Mapping[str, str]) -> Path:
    """Where the admin socket of the gateway on that port is looked for."""
    return list_folders(environ)[0] / f"gateway-{port}.sock"


def prepare_socket(path: Path) -> None:
    """Make its folder, for this user alone, and take away a socket nobody listens at.

    Raises:
        GatewayError: the folder is somebody else's, or something that is no socket is in the way.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_safe(path.parent):
        raise GatewayError(
            f"the folder {path.parent} is not safe for the admin socket",
            "another user owns it or may write to it",
            "name another place: --socket PATH",
        )
    if path.is_socket() or path.is_symlink():
        path.unlink()
    elif path.exists():
        raise GatewayError(
            f"{path} is in the way", "it is no socket", "remove it, or --socket PATH"
        )


def link_socket(path: Path, usual: Path) -> bool:
    """Let consoles find a socket that is not in its usual place. Whether they can."""
    try:
        prepare_socket(usual)
        usual.symlink_to(path.absolute())
    except (OSError, GatewayError):
        return False
    return True


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def _json(value: dict[str, object]) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")
