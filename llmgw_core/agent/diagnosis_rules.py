"""What engines print when they fail, deepest causes first: the table behind `diagnosis`. Pure.

Sources: vLLM 0.10 to 0.32, SGLang 0.4.6 to 0.5.23, torch, NCCL and Hugging Face Hub as those versions use them.
"""

import re
from typing import NamedTuple, Pattern, Tuple


class Rule(NamedTuple):
    """One cause: how it is told, how deep it lies, and what to do about it."""

    depth: (
        int  # 0: a root cause; 1: names the area; 2: a victim of another process; 3: after the fact
    )
    code: str
    pattern: Pattern[str]  # a group `text` is what is shown; else the line
    summary: str  # put before the text; "" where the engine's own words say it
    hint: str


# Lines that only say that something else failed.
WRAPPERS = re.compile(
    r"Engine core initialization failed|WorkerProc initialization failed|See (?:root cause|stack trace)"
    r"|Failed core proc|resource_tracker|nanobind|SystemExit|EngineDeadError|EngineCore encountered"
    r"|EngineCore failed to start|WorkerProc hit an exception|WorkerProc failed to start|Process \w+:$"
    r"|Received sigquit from a child|validation errors? for |KeyboardInterrupt|^Traceback|BrokenPipeError"
)


def _rule(depth: int, code: str, pattern: str, hint: str, summary: str = "") -> Rule:
    return Rule(depth, code, re.compile(pattern), summary, hint)


_PORT_HINT = "choose another port; a loading vLLM holds its port without listening, so `ss -ltn` does not show it"

_GPU: Tuple[Rule, ...] = (
    _rule(
        0,
        "gpu-lost",
        r"Xid.*: 79,|fallen off the bus",
        "drain the node and reset or reboot it",
        "a GPU is gone",
    ),
    _rule(
        0,
        "graph-capture",
        r"Capture cuda graph failed",
        "lower --mem-fraction-static, capture smaller batches, or --disable-cuda-graph",
    ),
    _rule(
        0,
        "gpu-memory-short",
        r"Free memory on device .* less than desired GPU memory utilization",
        "stop what holds the GPU's memory, or lower the GPU memory fraction",
    ),
    _rule(
        0,
        "gpu-memory-unbalanced",
        r"memory capacity is unbalanced",
        "stop what holds memory on one of the GPUs, or leave that GPU out",
    ),
    _rule(
        0,
        "kv-cache-none",
        r"No available memory for the cache blocks|Not enough memory\. Please try to increase --mem-fraction-static",
        "raise the GPU memory fraction, use more GPUs, or quantize: weights and activations take it all",
    ),
    _rule(
        0,
        "kv-cache-short",
        r"(?:larger|greater) than the maximum number of tokens that can be stored in KV cache"
        r"|KV cache is needed, which is larger than the available KV cache memory"
        r"|max seq len .* is larger than",
        "lower max_model_len, raise the GPU memory fraction, or use more GPUs",
    ),
    _rule(
        0,
        "cuda-oom",
        r"CUDA out of memory|torch\.OutOfMemoryError|CUDA error: out of memory|OutOfMemoryError",
        "lower the GPU memory fraction, max_model_len or the number of sequences; or use more GPUs",
    ),
    _rule(
        1,
        "driver-too-old",
        r"NVIDIA driver on your system is too old|driver version is insufficient|forward compatibility was attempted",
        "update the driver, or install an engine built for an older CUDA",
    ),
    _rule(
        0,
        "device-type-unknown",
        r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver on your system|No accelerator .*available",
        "run nvidia-smi on the node; check CUDA_VISIBLE_DEVICES and that the engine's build fits the node",
    ),
    _rule(
        0,
        "no-kernel-image",
        r"no kernel image is available for execution",
        "the engine's build does not support this GPU: install one that does",
    ),
    _rule(
        1,
        "cuda-error",
        r"CUDA error: (?P<text>.+)|CUDA_ERROR_\w+|cudaError\w*",
        "look at the GPU: nvidia-smi -q, dmesg -T | grep Xid",
        "CUDA",
    ),
)

_REQUEST: Tuple[Rule, ...] = (
    _rule(
        0,
        "max-len-over-derived",
        r"User-specified max_model_len .* is greater than the derived",
        "lower max_model_len to what the model was made for",
    ),
    _rule(
        0,
        "quantization-unknown",
        r"Unknown quantization method|argument --quantization.*invalid choice",
        "use a method this version of the engine knows",
    ),
    _rule(
        0,
        "quantization-mismatch",
        r"Quantization method specified in the model config",
        "leave the quantization out: the checkpoint says its own",
    ),
    _rule(
        0,
        "quantization-capability",
        r"quantization method \S+ is not supported for the current GPU",
        "use another quantization, or newer GPUs",
    ),
    _rule(
        0,
        "fp8-kv-capability",
        r"FP8 KV cache is not supported|requires SM89\+",
        "use a bfloat16 KV cache, or another attention backend",
    ),
    _rule(
        0,
        "bfloat16-capability",
        r"Bfloat16 is only supported on GPUs",
        "use dtype half on this GPU",
    ),
    _rule(
        0,
        "world-over-gpus",
        r"World size \(\d+\) is larger than the number of available GPUs",
        "fewer ranks on this node, or more nodes",
    ),
    _rule(
        0,
        "nodes-not-divide",
        r"must evenly divide the total world size|nnodes.*divi|tp_size must be divisible",
        "make nodes divide tp × pp × dp",
    ),
    _rule(
        0,
        "heads-not-divide",
        r"attention heads .*must be divisible by tensor parallel",
        "choose a tensor parallel size that divides the model's attention heads",
    ),
    _rule(
        0,
        "headless-api-count",
        r"cannot be used with --headless",
        "leave front-end arguments out on ranks above 0",
    ),
    _rule(
        0,
        "flag-unknown",
        r"unrecognized arguments: .+|ambiguous option: .+",
        "leave the argument out, or give its name in this version of the engine",
    ),
    _rule(
        0,
        "dtype-unknown",
        r"argument --dtype: invalid choice",
        "dtype is the number format; int8 and fp8 are quantizations",
    ),
    _rule(1, "argument-invalid", r"error: argument .*", "correct the argument"),
    _rule(
        0,
        "tool-parser-missing",
        r"--enable-auto-tool-choice requires --tool-call-parser",
        "add --tool-call-parser",
    ),
    _rule(
        0,
        "trust-remote-code",
        r"contains custom code which must be executed|trust_remote_code=True",
        "if you trust the model's author, add --trust-remote-code",
    ),
)

_MODEL: Tuple[Rule, ...] = (
    _rule(
        0,
        "model-path-missing",
        r"Repo id must be in the form|Incorrect path_or_model_id|is not a local folder and is not a valid model identifier",
        "check that the directory is there on every node",
        "the model's path is not on this node",
    ),
    _rule(
        0,
        "model-not-cached",
        r"outgoing traffic has been disabled|LocalEntryNotFoundError|couldn't connect to .* to load|OfflineModeIsEnabled",
        "download the model on every node first, or check HF_HOME",
        "the model is not in this node's cache and cannot be fetched",
    ),
    _rule(
        0,
        "model-gated",
        r"GatedRepoError|Access to model .* is restricted|You are trying to access a gated repo",
        "ask for access on the model's page, and pass HF_TOKEN with env_from",
    ),
    _rule(
        0,
        "model-not-found",
        r"RepositoryNotFoundError|Repository Not Found for url|404 Client Error",
        "correct the name; a private repository needs HF_TOKEN in env_from",
    ),
    _rule(
        0,
        "shard-truncated",
        r"Error while deserializing header|incomplete metadata, file not fully covered|HeaderTooLarge|InvalidHeaderDeserialization",
        "copy the weights again: a file is cut short",
        "a weight file is damaged",
    ),
    _rule(
        0,
        "weights-missing",
        r"Cannot find any model weights|Weight files referenced in index but missing|No such file.*safetensors",
        "check the directory's *.safetensors files",
    ),
    _rule(
        0,
        "tokenizer-missing",
        r"Couldn't instantiate the backend tokenizer|Can't load tokenizer for",
        "copy tokenizer.json and its companions next to the weights",
        "the tokenizer's files are missing",
    ),
    _rule(
        0,
        "architecture-unknown",
        r"does not recognize this architecture|Model architectures .* are not supported|not supported for now\. Supported arch",
        "upgrade the engine and transformers: the model is newer than they are",
    ),
)

_NETWORK: Tuple[Rule, ...] = (
    _rule(
        0,
        "rendezvous-port-taken",
        r"server socket has failed to listen.*(?:EADDRINUSE|in use)|dist_init_port at .*not available",
        "give each group of ranks a port of its own",
        "the port of the rendezvous is taken",
    ),
    _rule(
        0,
        "rendezvous-timeout",
        r"client socket has timed out .*trying to connect|client socket has failed to connect",
        "check from this node that rank 0's address and port can be reached, and that rank 0 runs",
        "rank 0 could not be reached",
    ),
    _rule(
        0,
        "port-taken",
        r"Errno 98\] .*[Aa]ddress already in use|[Aa]ddress already in use",
        _PORT_HINT,
        "the HTTP port is taken",
    ),
    _rule(
        0,
        "gloo-interface",
        r"Gloo connectFullMesh failed|gloo.*(?:connect|refused)",
        "set GLOO_SOCKET_IFNAME to the interface that reaches the other nodes",
        "Gloo picked an interface that does not reach the other ranks",
    ),
    _rule(
        0,
        "memlock",
        r"ibv_reg_mr\w* failed.*(?:Cannot allocate|memory)|ibv_create_\w+ failed.*Cannot allocate",
        "raise the locked memory limit (ulimit -l unlimited) of the SSH session or service",
        "InfiniBand may not lock memory",
    ),
    _rule(
        0,
        "shared-memory-full",
        r"posix_fallocate failed.*No space left|/dev/shm.*No space left|exit code: -7\b|Bus error",
        "enlarge /dev/shm, or remove stale psm_* and nccl-* files there",
        "shared memory (/dev/shm) is too small",
    ),
    _rule(
        0,
        "open-files",
        r"Too many open files",
        "raise the limit of open files (nofile) on the node",
    ),
    _rule(
        0,
        "disk-full",
        r"No space left on device",
        "free space on the node: weights cache, compile cache, /tmp",
        "a file system is full",
    ),
    _rule(
        2,
        "peer-lost",
        r"remote process exited or there was a network error|Connection closed by (?:remote )?peer|socketProgress.*Connection reset",
        "look at the rank whose log ends first: this one is its victim",
        "another rank died or the network failed",
    ),
    _rule(
        1,
        "nccl-system",
        r"NCCL error.*unhandled system error|unhandled system error",
        "check NCCL_SOCKET_IFNAME, NCCL_IB_HCA, memlock and /dev/shm; NCCL_DEBUG=WARN says which",
    ),
    _rule(
        1,
        "nccl-error",
        r"NCCL error(?!.*remote process exited)|NCCL WARN .*(?:fail|error)|unhandled cuda error",
        "run again with NCCL_DEBUG=WARN and read the first NCCL WARN",
    ),
    _rule(
        1,
        "collective-timeout",
        r"Watchdog caught collective operation timeout",
        "compare the SeqNum of all ranks: one hangs, or a link is down",
    ),
    _rule(
        1,
        "watchdog",
        r"Scheduler watchdog timeout|watchdog timeout",
        "look at the other ranks and the fabric; raise --watchdog-timeout only for long compilations",
        "no progress: a collective or a kernel hangs",
    ),
)

_SOFTWARE: Tuple[Rule, ...] = (
    _rule(0, "numa-bind", r"Not enough allowed NUMA nodes", "set VLLM_CPU_OMP_THREADS_BIND=nobind"),
    _rule(
        0,
        "nvcc-missing",
        r"Could not find nvcc|nvcc: (?:command )?not found",
        "install the CUDA toolkit or set CUDA_HOME; or VLLM_USE_FLASHINFER_SAMPLER=0",
    ),
    _rule(
        0,
        "packages-mismatch",
        r"is installed with version .* less than the minimum|undefined symbol|cannot open shared object file",
        "reinstall the engine's packages so that they fit one another",
    ),
    _rule(
        0,
        "package-missing",
        r"PackageNotFoundError|No package metadata was found|ModuleNotFoundError",
        "install it into the engine's virtual environment",
    ),
    _rule(
        1,
        "ready-timeout",
        r"Timed out waiting for engine core processes",
        "raise VLLM_ENGINE_READY_TIMEOUT_S; a slow disk or a download takes that long",
    ),
    _rule(
        1,
        "worker-died",
        r"died unexpectedly \(exit code: -9\)",
        "look for the kernel's memory killer: dmesg -T",
        "a worker was killed, most likely for memory",
    ),
    _rule(
        2,
        "worker-died",
        r"died unexpectedly \(exit code: -?\d+\)|crashed with exit code -?\d+",
        "read the worker's lines above it in the log",
    ),
    _rule(
        2,
        "warmup-failed",
        r"Initialization failed\. warmup error",
        "read the traceback that follows it in the log",
        "the first request failed",
    ),
    _rule(
        3,
        "health-stuck",
        r"Health check failed\. Server couldn't get a response",
        "the scheduler hangs, or one huge prefill blocks it",
    ),
    _rule(
        3,
        "worker-exception",
        r"WorkerProc hit an exception",
        "a rank on another node may have died earlier: look at its log first",
    ),
    _rule(
        3,
        "interrupted",
        r"KeyboardInterrupt: terminated",
        "somebody stopped it while it was loading",
        "it was told to stop",
    ),
)

RULES: Tuple[Rule, ...] = tuple(
    sorted((*_GPU, *_MODEL, *_REQUEST, *_NETWORK, *_SOFTWARE), key=lambda rule: rule.depth)
)
