"""Whether an engine answers: health, model list, and once a token. Asked by a thread, so that a tick never waits."""

import json
import socket
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Dict, Optional, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.launch import RankPlan

LOADING_INTERVAL_S = 1.0
READY_INTERVAL_S = 5.0
UNWATCHED_INTERVAL_S = 20.0  # while it is ready, and nobody would see that it is not
CONNECT_TIMEOUT_S = 3.0
# SGLang's /health makes a token and may answer only after 20 s.
HEALTH_TIMEOUT_S = {EngineKind.VLLM: 10.0, EngineKind.SGLANG: 25.0}
MODELS_TIMEOUT_S = 10.0
TOKEN_TIMEOUT_S = 180.0  # the first request may compile
MAX_BODY_BYTES = 1 << 20
_NOT_HERE = (400, 404, 405, 422, 501)  # this engine does not serve that kind of request
_UNAUTHORIZED = (401, 403)
_ANY_HOST = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # noqa: S104 - asked, not bound
_OK = 200


@dataclass(frozen=True)
class Answer:
    """What the last round of questions gave."""

    is_listening: bool = False  # something accepted a connection
    is_healthy: bool = False  # health and model list are as they should be
    is_verified: bool = False  # a token came back, now or earlier, or nobody wants one
    misses: int = 0  # rounds in a row that were not healthy
    trouble: str = ""  # why not, in words; "" when there is nothing to say
    rounds: int = 0


class Prober:
    """Asks one engine over and over until closed. `latest` never waits."""

    def __init__(self, rank: RankPlan, api_key: Optional[str], verified: bool) -> None:
        self._rank = rank
        self._api_key = api_key
        self._latest = Answer(is_verified=verified or not rank.verify)
        self._is_closed = False
        self._is_watched = True
        self._woken = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"probe-{rank.engine_id}", daemon=True
        )
        self._thread.start()

    @property
    def latest(self) -> Answer:
        """The last answer; all false before the first."""
        return self._latest

    def close(self, wait_s: float = 0.0) -> None:
        """Ask no more. A question on its way is left to its own timeout."""
        self._is_closed = True
        self._woken.set()
        if wait_s > 0:
            self._thread.join(wait_s)

    def set_watched(self, is_watched: bool) -> None:
        """Whether anybody sees the answers: asked less while not, and at once when somebody comes."""
        if is_watched and not self._is_watched:
            self._woken.set()
        self._is_watched = is_watched

    def _run(self) -> None:
        while not self._is_closed:
            self._woken.clear()
            self._latest = ask_engine(self._rank, self._api_key, self._latest)
            pause_s = READY_INTERVAL_S if self._is_watched else UNWATCHED_INTERVAL_S
            good = self._latest.is_healthy and self._latest.is_verified
            if not self._is_closed:
                self._woken.wait(pause_s if good else LOADING_INTERVAL_S)


def ask_engine(rank: RankPlan, api_key: Optional[str], before: Answer) -> Answer:
    """One round of questions: /health, /v1/models, and a token while none ever came.

    vLLM says 200 to /v1/models for seconds after its core died, SGLang before it is warm: both must be right.
    """
    rounds = before.rounds + 1
    listening, trouble = _ask_health_and_models(rank, api_key)
    if trouble is not None:
        return replace(
            before,
            is_listening=listening,
            is_healthy=False,
            misses=before.misses + 1,
            trouble=trouble,
            rounds=rounds,
        )
    verified, trouble = before.is_verified, ""
    if not verified:
        verified, trouble = _ask_for_token(rank, api_key)
    misses = 0 if verified else before.misses + 1
    return Answer(True, True, verified, misses, trouble, rounds)


def find_api_key(rank: RankPlan, secrets: Dict[str, str]) -> Optional[str]:
    """The key the engine will ask for, from its secrets, its environment or its arguments; None: none is known."""
    if rank.api_key:
        return secrets.get(rank.api_key)
    for source in (secrets, rank.env):
        for name in ("VLLM_API_KEY", "SGLANG_API_KEY"):
            if source.get(name):
                return source[name]
    for number, argument in enumerate(rank.argv):
        if argument == "--api-key" and number + 1 < len(rank.argv):
            return rank.argv[number + 1]
        if argument.startswith("--api-key="):
            return argument.partition("=")[2]
    return None


def http_request(
    address: Tuple[str, int],
    path: str,
    api_key: Optional[str],
    body: Optional[bytes],
    timeout_s: float,
) -> Tuple[int, bytes]:
    """(status, body) of one request. HTTP/1.0, so that the answer is never chunked and ends with the connection.

    Raises:
        OSError: nothing listens, it did not answer in time, or what it said is no HTTP.
    """
    deadline = time.monotonic() + timeout_s
    with socket.create_connection(address, min(CONNECT_TIMEOUT_S, timeout_s)) as connection:
        connection.sendall(_format_request(address, path, api_key, body))
        data = b""
        while len(data) < MAX_BODY_BYTES:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer to {path} in {timeout_s:g} s")
            connection.settimeout(left)
            piece = connection.recv(64 << 10)
            if not piece:
                break
            data += piece
            if _is_complete(data):
                break
    return _parse_response(data)


def _format_request(
    address: Tuple[str, int], path: str, api_key: Optional[str], body: Optional[bytes]
) -> bytes:
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.0",
        f"Host: {address[0]}:{address[1]}",
        "Connection: close",
        "Accept: application/json",
        "User-Agent: llmgw-agent",
    ]
    if api_key:
        lines.append(f"Authorization: Bearer {api_key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("utf-8") + (body or b"")


def _is_complete(data: bytes) -> bool:
    head, ended, body = data.partition(b"\r\n\r\n")
    if not ended:
        return False
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False


def _parse_response(data: bytes) -> Tuple[int, bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    parts = head.split(b"\r\n")[0].split(b" ")
    if not parts[0].startswith(b"HTTP/") or len(parts) < 2 or not parts[1].isdigit():  # noqa: PLR2004
        raise ConnectionError(f"not HTTP: {data[:40]!r}")
    return int(parts[1]), body


def _ask_health_and_models(rank: RankPlan, api_key: Optional[str]) -> Tuple[bool, Optional[str]]:
    """(whether something listens, what is wrong; None when nothing is)."""
    address = engine_address(rank)
    try:
        status, _ = http_request(address, "/health", api_key, None, HEALTH_TIMEOUT_S[rank.engine])
        if status != _OK:
            return True, f"/health says {status}"
        status, body = http_request(address, "/v1/models", api_key, None, MODELS_TIMEOUT_S)
    except (TimeoutError, socket.timeout) as error:  # one class from Python 3.10 on
        return True, str(error) or "it does not answer in time"
    except OSError as error:
        return False, error.strerror or str(error)
    if status in _UNAUTHORIZED:
        return True, "it refuses the API key that llmgw knows of it"
    names = _parse_models(body) if status == _OK else ()
    if rank.served_model_name not in names:
        listed = ", ".join(names) or "nothing"
        return True, f"/v1/models says {status} and lists {listed}"
    return True, None


def engine_address(rank: RankPlan) -> Tuple[str, int]:
    """Where to ask the engine: an address that stands for every interface is asked on loopback."""
    return _ANY_HOST.get(rank.host, rank.host), rank.port or 0


def _parse_models(body: bytes) -> Tuple[str, ...]:
    try:
        data = json.loads(body.decode("utf-8"))
    except ValueError:
        return ()
    items = data.get("data") if isinstance(data, dict) else None
    if not isinstance(items, list):
        return ()
    return tuple(str(item["id"]) for item in items if isinstance(item, dict) and "id" in item)


def _ask_for_token(rank: RankPlan, api_key: Optional[str]) -> Tuple[bool, str]:
    """(whether it answered, what it said else). An engine that serves no completions is asked what it may serve."""
    model: Dict[str, Any] = {"model": rank.served_model_name}
    token = {**model, "max_tokens": 1, "temperature": 0}
    requests = (
        ("/v1/completions", {**token, "prompt": "Hi"}),
        ("/v1/chat/completions", {**token, "messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/embeddings", {**model, "input": "Hi"}),
    )
    said = ""
    for path, value in requests:
        body = json.dumps(value).encode("utf-8")
        try:
            status, answer = http_request(
                engine_address(rank), path, api_key, body, TOKEN_TIMEOUT_S
            )
        except OSError as error:
            return False, f"{path}: {error.strerror or error}"
        if status == _OK:
            return True, ""
        said = said or f"{path} says {status}: {answer[:200].decode('utf-8', 'replace')}"
        if status not in _NOT_HERE:
            return False, said
    return False, said
