"""What an operator may see and do while the gateway runs: /admin on a Unix socket of his own, or with an admin key.

GET /admin/queue; POST /admin/pause, /admin/resume, /admin/drain with {"model"}, {"tenant"} or {"engine"}.
"""

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from aiohttp import web

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
            return _json(draw_queue(self._gates, self._rates, now, is_draining=self._is_draining()))
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


def find_socket(given: Path | None, port: int, environ: Mapping[str, str]) -> Path:
    """Where the admin socket of the gateway on that port is."""
    if given is not None:
        return given
    runtime = environ.get("XDG_RUNTIME_DIR")
    home = Path(runtime) / "llmgw" if runtime else Path(f"/tmp/llmgw-gateway-{os.getuid()}")  # noqa: S108 - checked below
    return home / f"gateway-{port}.sock"


def prepare_socket(path: Path) -> None:
    """Make its folder, for this user alone, and take away a socket nobody listens at.

    Raises:
        GatewayError: the folder is somebody else's, or something that is no socket is in the way.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.parent.lstat()
    if info.st_uid != os.getuid() or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o022:
        raise GatewayError(
            f"the folder {path.parent} is not safe for the admin socket",
            "another user owns it or may write to it",
            "name another place: --socket PATH",
        )
    if path.is_socket():
        path.unlink()
    elif path.exists():
        raise GatewayError(
            f"{path} is in the way", "it is no socket", "remove it, or --socket PATH"
        )


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def _json(value: dict[str, object]) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")
