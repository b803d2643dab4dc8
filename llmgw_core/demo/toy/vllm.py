"""The toy as vLLM: a leader with the API, a core, and a worker per GPU, with vLLM's manners.

Source: vLLM 0.32, observed: the port is bound at once and listens when everything is ready; a SIGTERM between the
core's start and its handshake is swallowed; a killed leader leaves core and workers; after the core's death /health
says 503 and the leader ends within 5 s, with exit code 0.
"""

import os
import signal
import socket
import sys
import time
from types import FrameType

from llmgw_core.demo.toy import speech
from llmgw_core.demo.toy.children import (
    Child,
    find_ended,
    fork_child,
    wait_for_end,
    wait_for_word,
)
from llmgw_core.demo.toy.gpu_memory import HeldGpu, find_gpus, is_demo_gone
from llmgw_core.demo.toy.options import Options
from llmgw_core.demo.toy.server import Front, serve
from llmgw_core.demo.toy.titles import set_name, set_title

SHARDS = 6
GRAPHS = 16
START_MIB = 540  # a CUDA context
CORE_END_S = 4.0
SEEN_READY_S = 2.0  # at least, before it fails as it was told
DEATH_NOTICE_S = 3.0  # the watchdog looks every 5 s; 3 to 5 were seen
# Shares of the loading time.
_IMPORTS, _HANDSHAKE, _WEIGHTS, _COMPILE, _GRAPHS = 0.14, 0.14, 0.42, 0.12, 0.18


class Leader:
    """The API process of one run."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._keeps_environment = os.environ.get("SPT_NOENV") == "1"
        self._core: Child | None = None
        self._in_handshake = False
        self._terms = 0
        self._process = "MainProcess" if options.is_headless else "APIServer"

    def run(self) -> int:
        """Load, serve, and end as vLLM would. Returns the exit code."""
        options = self._options
        if options.failure == "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGTERM, self._on_term)
        listener = None if options.is_headless else bind(options)
        set_name("vllm")
        self._import_and_check()
        core = self._core = fork_child(self._run_core)
        self._in_handshake = True
        time.sleep(options.load_s * _HANDSHAKE)
        while self._terms:
            time.sleep(1)  # it was told to end, forgot it, and now waits for what never comes
        self._in_handshake = False
        core.tell(b"go\n")
        word = core.hears(86400)
        if word != b"ready\n":
            return self._fail()
        if listener is None:
            return self._watch(core, None)
        return self._serve(core, listener)

    def _import_and_check(self) -> None:
        options = self._options
        speech.write_out(speech.LOGO % (speech.VERSION, options.model))
        time.sleep(options.load_s * _IMPORTS)
        arguments = {"model_tag": options.model, "served_model_name": [options.served]}
        self._say(f"non-default args: {arguments}", "utils.py:325")
        if options.failure == "exit0":
            raise SystemExit(0)
        if options.failure == "bad-model":
            speech.write_err(
                "Traceback (most recent call last):\n"
                '  File "/opt/vllm/bin/vllm", line 8, in <module>\n    sys.exit(main())\n'
                f"pydantic_core._pydantic_core.ValidationError: {speech.BAD_MODEL % options.model}\n"
            )
            raise SystemExit(1)
        self._say("Resolved architecture: LlamaForCausalLM", "model.py:514")
        self._say(f"Using max model len {options.max_len}", "model.py:1661")
        if options.is_headless:
            self._say(
                f"Launching vLLM (v{speech.VERSION}) headless multiproc executor, with head node address "
                f"{options.master}:29501 for torch.distributed process group.",
                "serve.py:194",
            )

    def _run_core(self, inbox: int, outbox: int) -> int:
        return Core(self._options, keeps_environment=self._keeps_environment).run(inbox, outbox)

    def _serve(self, core: Child, listener: socket.socket) -> int:
        options = self._options
        self._say(f"Starting vLLM server on http://{options.host}:{options.port}", "launcher.py:38")
        for route in speech.ROUTES:
            self._say(f"Route: {route}", "launcher.py:46")
        speech.say_uvicorn(f"Started server process [{os.getpid()}]")
        speech.say_uvicorn("Waiting for application startup.")
        front = Front(options, find_gpus(os.environ)[: options.workers], core.pid)
        serve(front, listener)
        speech.say_uvicorn("Application startup complete.")
        return self._watch(core, front)

    def _watch(self, core: Child, front: Front | None) -> int:
        while find_ended((core,)) is None:
            time.sleep(0.1)
            if is_demo_gone(os.environ):
                core.signal(signal.SIGKILL)
        if front is not None:
            front.is_dead = True
        self._say(
            "AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: "
            "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            "async_llm.py:713",
            "ERROR",
        )
        time.sleep(DEATH_NOTICE_S)
        return 0

    def _fail(self) -> int:
        speech.write_err(
            "Traceback (most recent call last):\n"
            '  File "/opt/vllm/lib/python3.12/site-packages/vllm/v1/engine/utils.py", line 950, in wait_for_engine_startup\n'
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
        )
        return 1

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._terms += 1
        if self._in_handshake and self._terms == 1:
            return
        if self._core is not None:
            speech.write_out(
                f"({self._process} pid={os.getpid()}) INFO {time.strftime('%m-%d %H:%M:%S')} [launcher.py:99] "
                "[shutdown] API server: shutdown triggered\n"
            )
            self._core.signal(signal.SIGTERM)
            self._await_core()
        os._exit(0)

    def _await_core(self) -> None:
        deadline = time.monotonic() + CORE_END_S
        while self._core is not None and time.monotonic() < deadline:
            if find_ended((self._core,)) is not None:
                return
            time.sleep(0.05)

    def _say(self, text: str, source: str, level: str = "INFO") -> None:
        speech.say_vllm(self._process, text, level, source)


class Core:
    """EngineCore: starts the workers, waits for them, and dies when one of them does."""

    def __init__(self, options: Options, *, keeps_environment: bool) -> None:
        self._options = options
        self._keeps_environment = keeps_environment
        self._in_handshake = True
        self._terms = 0

    def run(self, inbox: int, outbox: int) -> int:
        """Load and work until told to end. Returns the exit code."""
        options = self._options
        if options.failure == "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGTERM, self._on_term)
        set_title("VLLM::EngineCore", keep_environment=self._keeps_environment)
        speech.say_vllm(
            "EngineCore",
            f"Initializing a V1 LLM engine (v{speech.VERSION}) with config: model='{options.model}', "
            f"max_seq_len={options.max_len}, tensor_parallel_size={options.workers}",
        )
        wait_for_word(inbox)
        self._in_handshake = False
        workers = self._start_workers((inbox, outbox))
        if not self._await_workers(workers):
            speech.fail_core("EngineCore")
            return 1
        self._warm_up()
        os.write(outbox, b"ready\n")
        return self._work(workers)

    def _start_workers(self, parents: tuple[int, ...]) -> tuple[Child, ...]:
        workers: list[Child] = []
        for rank in range(self._options.workers):
            others = [end for child in workers for end in (child.inbox, child.outbox)]
            worker = Worker(self._options, rank, keeps_environment=self._keeps_environment)
            workers.append(fork_child(worker.run, (*parents, *others)))
        return tuple(workers)

    def _await_workers(self, workers: tuple[Child, ...]) -> bool:
        return all(child.hears(86400) == b"loaded\n" for child in workers)

    def _warm_up(self) -> None:
        load_s = self._options.load_s
        started = time.monotonic()
        say = speech.say_vllm
        say(
            "EngineCore",
            "Using cache directory: /root/.cache/vllm/torch_compile_cache for vLLM's torch.compile",
        )
        time.sleep(load_s * _COMPILE)
        say("EngineCore", "torch.compile took 7.88 s in total", source="monitor.py:34")
        if self._options.failure == "no-kv":
            speech.blow_up("EngineCore", "initialize_kv_caches", speech.NO_KV)
            raise SystemExit(1)
        tokens = 467_984 * max(1, self._options.workers)
        say(
            "EngineCore",
            f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {self._options.max_len:,} "
            f"tokens per request: {tokens / self._options.max_len:.2f}x",
            source="kv_cache_utils.py:1316",
        )
        for done in range(GRAPHS + 1):
            speech.draw_graphs(done, GRAPHS)
            time.sleep(load_s * _GRAPHS / (GRAPHS + 1))
        say("EngineCore", "Graph capturing finished in 2 secs, took 0.84 GiB")
        spent = time.monotonic() - started
        say(
            "EngineCore",
            f"init engine (profile, create kv cache, warmup model) took {spent:.2f} seconds",
        )

    def _work(self, workers: tuple[Child, ...]) -> int:
        ready_at = time.monotonic()
        failure = self._options.failure
        while True:
            time.sleep(0.2)
            if is_demo_gone(os.environ):
                return 1
            is_due = time.monotonic() - ready_at > max(SEEN_READY_S, self._options.load_s)
            if failure == "die-after-ready" and is_due:
                speech.blow_up(
                    "EngineCore",
                    "execute_model",
                    "RuntimeError: CUDA error: an illegal memory access was encountered",
                )
                return 1
            if failure == "lose-worker" and is_due:
                workers[0].signal(signal.SIGKILL)
            ended = find_ended(workers)
            if ended is not None:
                rank = workers.index(ended[0])
                speech.say_vllm(
                    "EngineCore",
                    f"Worker proc VllmWorker-{rank} died unexpectedly (exit code: {ended[1]}), shutting down executor.",
                    "ERROR",
                    "multiproc_executor.py:231",
                )
                return 1

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._terms += 1
        if not (self._in_handshake and self._terms == 1):
            os._exit(0)


class Worker:
    """One rank: holds its GPU, and ends when the core does."""

    def __init__(self, options: Options, rank: int, *, keeps_environment: bool) -> None:
        self._options = options
        self._rank = rank
        self._name = f"Worker_TP{rank}" if options.is_group else "Worker"
        self._keeps_environment = keeps_environment
        gpus = find_gpus(os.environ)
        self._gpu: HeldGpu | None = gpus[rank] if rank < len(gpus) else None

    def run(self, inbox: int, outbox: int) -> int:
        """Load the weights, say so, and stay. Returns the exit code."""
        if self._options.failure == "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        set_title(f"VLLM::{self._name}", keep_environment=self._keeps_environment)
        self._hold(START_MIB)
        rank = self._rank + self._options.node_rank * self._options.workers
        self._say(
            f"world_size={self._options.workers} rank={rank} local_rank={self._rank} "
            "distributed_init_method=tcp://127.0.0.1:40771 backend=nccl"
        )
        self._say(f"Starting to load model {self._options.model}...")
        self._load()
        os.write(outbox, b"loaded\n")
        wait_for_end(inbox)
        return 0

    def _load(self) -> None:
        started = time.monotonic()
        total_mib = self._total_mib()
        for done in range(SHARDS + 1):
            if self._rank == 0:
                speech.draw_shards(done, SHARDS, started)
            self._hold(START_MIB + int(0.3 * total_mib * done / SHARDS))
            if done == SHARDS // 2:
                self._maybe_fail()
            time.sleep(self._options.load_s * _WEIGHTS / (SHARDS + 1))
        spent = time.monotonic() - started
        self._say(f"Loading weights took {spent:.2f} seconds")
        self._say(f"Model loading took 14.99 GiB memory and {spent + 0.4:.6f} seconds")
        self._hold(int(total_mib * self._options.memory_fraction))
        self._say("Available KV cache memory: 57.13 GiB")

    def _maybe_fail(self) -> None:
        if self._options.failure == "hang":
            while True:
                time.sleep(60)
        if self._options.failure == "oom" and self._rank == 0:
            self._hold(self._total_mib() - 200)
            speech.blow_up(self._name, "load_model", speech.OOM)
            sys.exit(1)

    def _total_mib(self) -> int:
        return self._gpu.total_mib if self._gpu is not None else 0

    def _hold(self, mib: int) -> None:
        if self._gpu is not None:
            self._gpu.hold(mib, f"VLLM::{self._name}")

    def _say(self, text: str) -> None:
        speech.say_vllm(self._name, text, source="gpu_model_runner.py:3921")


def bind(options: Options) -> socket.socket:
    """Return the engine's socket, bound and not yet listening.

    Raises:
        OSError: somebody listens there.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((options.host, options.port))
    return listener
