"""The toy as SGLang: a leader with HTTP and the tokenizer, a scheduler per GPU, a detokenizer, with SGLang's manners.

Source: SGLang 0.5: HTTP opens before the warm-up, when /v1/models is 200 and /health 503; children die with their
leader (PR_SET_PDEATHSIG); a child that fails takes the whole tree down.
"""

import os
import signal
import socket
import time
from types import FrameType

from llmgw_core.demo.toy import speech
from llmgw_core.demo.toy.children import Child, find_ended, fork_child, wait_for_end
from llmgw_core.demo.toy.gpu_memory import find_gpus, is_demo_gone
from llmgw_core.demo.toy.options import Options
from llmgw_core.demo.toy.server import Front, serve
from llmgw_core.demo.toy.titles import die_with_parent, set_title
from llmgw_core.demo.toy.vllm import SEEN_READY_S, SHARDS, START_MIB, bind

_IMPORTS, _WEIGHTS, _GRAPHS, _WARMUP = 0.25, 0.45, 0.15, 0.15


class Leader:
    """The main process of one run."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._keeps_environment = os.environ.get("SPT_NOENV") == "1"

    def run(self) -> int:
        """Load, serve, and end as SGLang would. Returns the exit code."""
        options = self._options
        is_deaf = options.failure == "ignore-term" or options.is_headless
        signal.signal(signal.SIGTERM, signal.SIG_IGN if is_deaf else self._on_term)
        listener = bind(options)
        time.sleep(options.load_s * _IMPORTS)
        speech.say_sglang(
            f"server_args=ServerArgs(model_path='{options.model}', host='{options.host}', port={options.port}, "
            f"tp_size={options.workers}, served_model_name='{options.served}')"
        )
        if options.failure == "exit0":
            return 0
        if options.failure == "bad-model":
            speech.write_err(
                "Traceback (most recent call last):\nValueError: Model architectures ['ToyForCausalLM'] "
                "are not supported for now. Supported architectures: dict_keys(['LlamaForCausalLM'])\n"
            )
            return 1
        children = self._start_children()
        if not all(child.hears(86400) == b"loaded\n" for child in children):
            return self._die_with_child()
        return self._serve(children, listener)

    def _start_children(self) -> tuple[Child, ...]:
        children: list[Child] = []
        for rank in range(self._options.workers):
            scheduler = Scheduler(self._options, rank, keeps_environment=self._keeps_environment)
            children.append(fork_child(scheduler.run, _ends(children)))
        children.append(fork_child(self._detokenize, _ends(children)))
        return tuple(children)

    def _detokenize(self, inbox: int, outbox: int) -> int:
        die_with_parent(signal.SIGKILL)
        set_title("sglang::detokenizer", keep_environment=self._keeps_environment)
        os.write(outbox, b"loaded\n")
        wait_for_end(inbox)
        return 0

    def _serve(self, children: tuple[Child, ...], listener: socket.socket) -> int:
        options = self._options
        speech.say_sglang(
            "max_total_num_tokens=431072, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            f"max_running_requests=2048, context_len={options.max_len}, available_gpu_mem=9.12 GB"
        )
        gpus = find_gpus(os.environ)[: options.workers]
        front = Front(options, gpus, children[0].pid, is_warm=options.is_headless)
        serve(front, listener)
        speech.say_uvicorn(f"Started server process [{os.getpid()}]")
        speech.say_uvicorn("Application startup complete.")
        speech.say_uvicorn(f"Uvicorn running on http://{options.host}:{options.port}")
        time.sleep(options.load_s * _WARMUP)
        front.is_warm = True
        speech.say_sglang("The server is fired up and ready to roll!")
        ready_at = time.monotonic()
        while find_ended(children) is None:
            time.sleep(0.1)
            is_due = time.monotonic() - ready_at > max(SEEN_READY_S, options.load_s)
            fails = is_due and options.failure in ("die-after-ready", "lose-worker")
            if fails or is_demo_gone(os.environ):
                children[0].signal(signal.SIGKILL)
        return self._die_with_child()

    def _die_with_child(self) -> int:
        speech.say_sglang(
            "Received sigquit from a child process. It usually means the child failed."
        )
        os.kill(os.getpid(), signal.SIGKILL)
        return 1

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        speech.say_sglang("SIGTERM received. Gracefully exiting... Remaining number of requests 0")
        time.sleep(0.3)
        os._exit(0)


class Scheduler:
    """One rank: holds its GPU."""

    def __init__(self, options: Options, rank: int, *, keeps_environment: bool) -> None:
        self._options = options
        self._rank = rank
        self._label = f"TP{rank}" if options.is_group else ""
        self._title = f"sglang::scheduler{f'_TP{rank}' if options.is_group else ''}"
        self._keeps_environment = keeps_environment
        gpus = find_gpus(os.environ)
        self._gpu = gpus[rank] if rank < len(gpus) else None

    def run(self, inbox: int, outbox: int) -> int:
        """Load the weights, say so, and stay. Returns the exit code."""
        die_with_parent(signal.SIGKILL)
        set_title(self._title, keep_environment=self._keeps_environment)
        self._hold(START_MIB)
        self._say("Init torch distributed begin.")
        self._say("Load weight begin. avail mem=78.60 GB")
        self._load()
        self._say("KV Cache is allocated. #tokens: 431072, K size: 26.31 GB, V size: 26.31 GB")
        self._say("Memory pool end. avail mem=9.85 GB")
        self._say(
            "Capture cuda graph begin. This can take up to several minutes. avail mem=9.80 GB"
        )
        time.sleep(self._options.load_s * _GRAPHS)
        self._say(
            "Capture cuda graph end. Time elapsed: 3.21 s. mem usage=0.66 GB. avail mem=9.12 GB."
        )
        os.write(outbox, b"loaded\n")
        wait_for_end(inbox)
        return 0

    def _load(self) -> None:
        started = time.monotonic()
        total_mib = self._gpu.total_mib if self._gpu is not None else 0
        for done in range(SHARDS + 1):
            if self._rank == 0:
                speech.draw_shards(done, SHARDS, started)
            self._hold(START_MIB + int(0.3 * total_mib * done / SHARDS))
            if done == SHARDS // 2:
                self._maybe_fail()
            time.sleep(self._options.load_s * _WEIGHTS / (SHARDS + 1))
        self._say(
            "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.50 GB, mem usage=15.08 GB."
        )
        self._hold(int(total_mib * self._options.memory_fraction))

    def _maybe_fail(self) -> None:
        if self._options.failure == "hang":
            while True:
                time.sleep(60)
        wanted = {"oom": speech.OOM, "no-kv": _NO_MEMORY}.get(self._options.failure or "")
        if wanted is not None and self._rank == 0:
            self._say(f"Scheduler hit an exception: Traceback (most recent call last):\n{wanted}\n")
            raise SystemExit(1)

    def _hold(self, mib: int) -> None:
        if self._gpu is not None:
            self._gpu.hold(mib, self._title)

    def _say(self, text: str) -> None:
        speech.say_sglang(text, self._label)


_NO_MEMORY = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.5"


def _ends(children: list[Child]) -> tuple[int, ...]:
    return tuple(end for child in children for end in (child.inbox, child.outbox))
