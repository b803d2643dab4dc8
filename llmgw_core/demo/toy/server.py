"""The toy engine's HTTP: what OpenAI clients, probes and scrapers ask of vLLM and SGLang."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llmgw_core.demo.toy import speech
from llmgw_core.demo.toy.gpu_memory import HeldGpu
from llmgw_core.demo.toy.options import Options

TOKENS_PER_SECOND = 50.0
STATS_EVERY_S = 10.0
_DEFAULT_TOKENS = 16
_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_WORDS = [
    "the",
    "rack",
    "hums",
    "and",
    "every",
    "lamp",
    "is",
    "green",
    "while",
    "tokens",
    "pass",
    "from",
    "rank",
    "to",
    "rank",
    "over",
    "quiet",
    "fibre",
    "and",
    "nobody",
    "waits",
    "for",
    "long",
    "because",
    "the",
    "queue",
    "is",
    "short",
    "tonight",
]


@dataclass
class Front:
    """What the HTTP side knows of its engine."""

    options: Options
    gpus: tuple[HeldGpu, ...]
    core_pid: int
    is_dead: bool = False
    is_warm: bool = (
        True  # SGLang says 503 to /health before its warm-up, and lists its model all the same
    )
    running: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    started_at: int = field(default_factory=lambda: int(time.time()))
    lock: threading.Lock = field(default_factory=threading.Lock)
    said_at: float = 0.0

    def begin(self, prompt_tokens: int) -> None:
        """Count a request in."""
        for gpu in self.gpus:
            gpu.note_work()
        with self.lock:
            self.running += 1
            self.prompt_tokens += prompt_tokens

    def end(self, tokens: int) -> None:
        """Count it out."""
        with self.lock:
            self.running -= 1
            self.finished += 1
            self.generated_tokens += tokens
            is_due = time.monotonic() - self.said_at > STATS_EVERY_S
            if is_due:
                self.said_at = time.monotonic()
        if is_due:
            self._say_stats()

    def _say_stats(self) -> None:
        if self.options.kind == "vllm":
            speech.say_vllm(
                "APIServer",
                f"Engine 000: Avg prompt throughput: 3.2 tokens/s, Avg generation throughput: {TOKENS_PER_SECOND:.1f} "
                f"tokens/s, Running: {self.running} reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%, "
                "Prefix cache hit rate: 0.0%",
                source="loggers.py:257",
            )
        else:
            speech.say_sglang(
                f"Decode batch, #running-req: {self.running}, #token: 64, token usage: 0.00, cuda graph: True, "
                f"gen throughput (token/s): {TOKENS_PER_SECOND:.2f}, #queue-req: 0"
            )


def serve(front: Front, listener: socket.socket) -> None:
    """Listen, and answer from threads for as long as the process lives."""
    listener.listen(128)
    server = ThreadingHTTPServer(
        listener.getsockname()[:2], _make_handler(front), bind_and_activate=False
    )
    server.socket.close()
    server.socket = listener
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()


def _make_handler(front: Front) -> type[BaseHTTPRequestHandler]:
    return type("ToyHandler", (_Handler,), {"front": front})


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    front: Front
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a question about the engine."""
        path = self.path.partition("?")[0]
        if not self._may_ask(path):
            return
        if path in ("/health", "/ping", "/health_generate"):
            is_well = self.front.is_warm and not self.front.is_dead
            self._send(200 if is_well else 503, b"")
        elif path == "/v1/models":
            self._send_json(200, {"object": "list", "data": [self._model_card()]})
        elif path == "/version" and self.front.options.kind == "vllm":
            self._send_json(200, {"version": speech.VERSION})
        elif path == "/metrics" and self.front.options.has_metrics:
            self._send(200, format_metrics(self.front).encode(), "text/plain; version=0.0.4")
        else:
            self._send_json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Answer a completion."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._may_ask(self.path):
            return
        is_chat = self.path == "/v1/chat/completions"
        if not is_chat and self.path != "/v1/completions":
            self._send_json(404, {"detail": "Not Found"})
            return
        try:
            request = json.loads(body)
            prompt = request["messages"][-1]["content"] if is_chat else request["prompt"]
            wanted = int(request.get("max_tokens") or _DEFAULT_TOKENS)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            self._send_json(400, {"error": {"message": f"bad request: {error!r}", "code": 400}})
            return
        if request.get("model") not in (None, self.front.options.served):
            text = f"The model `{request.get('model')}` does not exist."
            self._send_json(404, {"error": {"message": text, "type": "NotFoundError", "code": 404}})
            return
        self._complete(is_chat, str(prompt), wanted, is_stream=bool(request.get("stream")))

    def _complete(self, is_chat: bool, prompt: str, wanted: int, *, is_stream: bool) -> None:
        if self.front.options.failure == "die-on-request":
            _kill_core(self.front)
        if self.front.is_dead:
            self._send_json(500, {"error": {"message": _DEAD, "type": "InternalServerError"}})
            return
        count = len(prompt.split())
        self.front.begin(count)
        done = 0
        try:
            if is_stream:
                self._send_head(200, "text/event-stream", None)
                for done, word in enumerate(generate(prompt, wanted), 1):  # noqa: B007 - counted below
                    self._send_event(json.dumps(self._chunk(is_chat, word, None)))
                self._send_event(json.dumps(self._chunk(is_chat, "", "length")))
                self._send_event("[DONE]")
                self._send_piece(b"")
            else:
                words = list(generate(prompt, wanted))
                done = len(words)
                self._send_json(200, self._answer(is_chat, "".join(words), count, done))
        finally:
            self.front.end(done)

    def _answer(self, is_chat: bool, text: str, prompt_tokens: int, tokens: int) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        if is_chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        }
        return {**self._frame(is_chat, ""), "choices": [choice], "usage": usage}

    def _chunk(self, is_chat: bool, text: str, finish: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if is_chat:
            choice["delta"] = {"content": text}
        else:
            choice["text"] = text
        return {**self._frame(is_chat, ".chunk" if is_chat else ""), "choices": [choice]}

    def _frame(self, is_chat: bool, suffix: str) -> dict[str, Any]:
        kind = "chat.completion" if is_chat else "text_completion"
        return {
            "id": f"cmpl-{os.urandom(8).hex()}",
            "object": f"{kind}{suffix}",
            "created": int(time.time()),
            "model": self.front.options.served,
        }

    def _model_card(self) -> dict[str, Any]:
        options = self.front.options
        return {
            "id": options.served,
            "object": "model",
            "created": self.front.started_at,
            "owned_by": options.kind,
            "root": options.model,
            "parent": None,
            "max_model_len": options.max_len,
        }

    def _may_ask(self, path: str) -> bool:
        key = self.front.options.api_key
        if key is None or not path.startswith("/v1"):
            return True
        if self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self._send_json(401, {"error": "Unauthorized"})
        return False

    def _send_json(self, status: int, value: dict[str, Any]) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self._send_head(status, kind, len(body))
        self.wfile.write(body)

    def _send_head(self, status: int, kind: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _send_event(self, data: str) -> None:
        self._send_piece(f"data: {data}\n\n".encode())

    def _send_piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print uvicorn's access line."""
        del format
        if self.path in self.front.options.quiet_paths:
            return
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        status = str(args[1]) if len(args) > 1 else ""
        phrase = HTTPStatus(int(status)).phrase if status.isdigit() else ""
        speech.say_uvicorn(f'{client} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}')


def generate(prompt: str, count: int) -> Iterator[str]:
    """Yield words at a model's pace; the same prompt gives the same words."""
    start = sum(prompt.encode("utf-8")) % len(_WORDS)
    for number in range(count):
        time.sleep(1 / TOKENS_PER_SECOND)
        yield ("" if number == 0 else " ") + _WORDS[(start + number) % len(_WORDS)]


def format_metrics(front: Front) -> str:
    """Return the Prometheus text of the engine's main numbers."""
    if front.options.kind == "sglang":
        label = f'{{engine_type="unified",model_name="{front.options.served}",tp_rank="0"}}'
        values = {
            "sglang:num_running_reqs": front.running,
            "sglang:num_queue_reqs": 0,
            "sglang:token_usage": min(1.0, 0.01 * front.running),
            "sglang:gen_throughput": TOKENS_PER_SECOND * front.running,
            "sglang:prompt_tokens_total": front.prompt_tokens,
            "sglang:generation_tokens_total": front.generated_tokens,
        }
    else:
        label = f'{{engine="0",model_name="{front.options.served}"}}'
        values = {
            "vllm:num_requests_running": front.running,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": min(1.0, 0.01 * front.running),
            "vllm:prompt_tokens_total": front.prompt_tokens,
            "vllm:generation_tokens_total": front.generated_tokens,
            "vllm:request_success_total": front.finished,
        }
    lines = []
    for name, value in values.items():
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        lines.append(f"{name}{label} {float(value)}")
    return "\n".join(lines) + "\n"


def _kill_core(front: Front) -> None:
    """A shape the kernels cannot take ends the core at the first request, after /health said 200."""
    front.is_dead = True
    speech.say_vllm(
        "Worker",
        "WorkerProc hit an exception.\nRuntimeError: CUDA error: no kernel image is available for execution on the device",
        "ERROR",
        "multiproc_executor.py:772",
    )
    try:
        os.kill(front.core_pid, signal.SIGKILL)
    except ProcessLookupError:
        return
