"""Log lines in the engines' own formats. Source: outputs of vLLM 0.32 and SGLang 0.5.23."""

import os
import sys
import time

VERSION = "0.32.0"
LOGO = """
       \x1b[1m█     █     █▄   ▄█\x1b[0m
 ▄▄ ▄█ █     █     █ ▀▄▀ █  version %s
  █▄█▀ █     █     █     █  model   %s
   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀
"""
ROUTES = (
    "/openapi.json, Methods: HEAD, GET",
    "/docs, Methods: HEAD, GET",
    "/health, Methods: GET",
    "/load, Methods: GET",
    "/ping, Methods: GET",
    "/ping, Methods: POST",
    "/tokenize, Methods: POST",
    "/detokenize, Methods: POST",
    "/v1/models, Methods: GET",
    "/version, Methods: GET",
    "/v1/responses, Methods: POST",
    "/v1/chat/completions, Methods: POST",
    "/v1/completions, Methods: POST",
    "/v1/embeddings, Methods: POST",
    "/rerank, Methods: POST",
    "/invocations, Methods: POST",
    "/metrics, Methods: GET",
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of "
    "79.18 GiB of which 212.44 MiB is free. Including non-PyTorch memory, this process has 78.96 GiB memory in use."
)
NO_KV = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
    "initializing the engine."
)
BAD_MODEL = (
    "1 validation error for ModelConfig\n"
    "  Value error, Model architectures ['ToyForCausalLM'] are not supported for now. Supported architectures: "
    "dict_keys(['LlamaForCausalLM', 'Qwen3ForCausalLM']) [type=value_error, input_value=ArgsKwargs((), "
    "{'model': '%s'}), input_type=ArgsKwargs]\n"
    "    For further information visit https://errors.pydantic.dev/2.11/v/value_error"
)


def write_out(text: str) -> None:
    """Write to stdout at once, whole."""
    _write(1, text)


def write_err(text: str) -> None:
    """Write to stderr at once, whole: progress bars, tracebacks, and all that SGLang says."""
    _write(2, text)


def say_vllm(process: str, text: str, level: str = "INFO", source: str = "core.py:94") -> None:
    """Print one log record of vLLM; each of its lines has the prefix `(EngineCore pid=7) INFO 12-01 03:00:00 [core.py:94]`."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    prefix = f"({process} pid={os.getpid()}) {level} {stamp} [{source}] "
    write_out("".join(f"{prefix}{line}\n" for line in text.split("\n")))


def say_sglang(text: str, rank: str = "") -> None:
    """Print one line of SGLang: `[2026-12-01 03:00:00 TP0] Load weight begin. avail mem=78.60 GB`."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    write_err(f"[{stamp}{f' {rank}' if rank else ''}] {text}\n")


def say_uvicorn(text: str) -> None:
    """Print a line of uvicorn, which has neither time nor process."""
    write_out(f"INFO:     {text}\n")


def draw_shards(done: int, total: int, started: float) -> None:
    """Draw the bar of weight shards: a carriage return before it, a newline after it."""
    spent = int(time.monotonic() - started)
    percent = round(100 * done / total)
    write_err(
        f"\rLoading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{total} "
        f"[00:{spent:02d}<00:{spent * (total - done) // max(1, done):02d},  1.20it/s]\n"
    )


def draw_graphs(done: int, total: int) -> None:
    """Draw the bar of graph captures: carriage returns alone until it is done."""
    percent = round(100 * done / total)
    bar = "█" * (percent // 10)
    write_err(
        f"\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): {percent:3d}%|{bar:<10}| {done}/{total} "
        f"[00:01<00:00, 24.10it/s]{chr(10) if done == total else ''}"
    )


def blow_up(process: str, function: str, error: str) -> None:
    """Print a traceback as vLLM does: as log records, and once more plainly."""
    trace = (
        "Traceback (most recent call last):\n"
        f'  File "/opt/vllm/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 310, in {function}\n'
        f"    self.model_runner.{function}()\n"
        f"{error}"
    )
    say_vllm(process, trace, "ERROR", "multiproc_executor.py:772")
    write_err(f"Process {process}:\n{trace}\n")


def fail_core(process: str) -> None:
    """Print what the processes above a failed worker say: nothing of use."""
    say_vllm(process, "EngineCore failed to start.", "ERROR", "core.py:866")
    say_vllm(
        process,
        "Exception: WorkerProc initialization failed due to an exception in a background process. "
        "See stack trace for root cause.",
        "ERROR",
        "core.py:866",
    )


def _write(descriptor: int, text: str) -> None:
    data = text.encode("utf-8")
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        sys.exit(1)
