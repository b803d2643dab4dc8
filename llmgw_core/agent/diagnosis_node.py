"""Failures that lie in the node: its GPUs, its network, its software. Pure.

Sources: vLLM 0.10 to 0.32, SGLang 0.4.6 to 0.5.23, torch, NCCL and Hugging Face Hub as those versions use them.
"""

from typing import Tuple

from llmgw_core.agent.diagnosis_rule import Rule, make_rule

_PORT_HINT = "choose another port; a loading vLLM holds its port without listening, so `ss -ltn` does not show it"

GPU: Tuple[Rule, ...] = (
    make_rule(
        0,
        "gpu-lost",
        r"Xid.*: 79,|fallen off the bus",
        "drain the node and reset or reboot it",
        "a GPU is gone",
    ),
    make_rule(
        0,
        "graph-capture",
        r"Capture cuda graph failed",
        "lower --mem-fraction-static, capture smaller batches, or --disable-cuda-graph",
    ),
    make_rule(
        0,
        "gpu-memory-short",
        r"Free memory on device .* less than desired GPU memory utilization",
        "stop what holds the GPU's memory, or lower the GPU memory fraction",
    ),
    make_rule(
        0,
        "gpu-memory-unbalanced",
        r"memory capacity is unbalanced",
        "stop what holds memory on one of the GPUs, or leave that GPU out",
    ),
    make_rule(
        0,
        "kv-cache-none",
        r"No available memory for the cache blocks|Not enough memory\. Please try to increase --mem-fraction-static",
        "raise the GPU memory fraction, use more GPUs, or quantize: weights and activations take it all",
    ),
    make_rule(
        0,
        "kv-cache-short",
        r"(?:larger|greater) than the maximum number of tokens that can be stored in KV cache"
        r"|KV cache is needed, which is larger than the available KV cache memory"
        r"|max seq len .* is larger than",
        "lower max_model_len, raise the GPU memory fraction, or use more GPUs",
    ),
    make_rule(
        0,
        "cuda-oom",
        r"CUDA out of memory|torch\.OutOfMemoryError|CUDA error: out of memory|OutOfMemoryError",
        "lower the GPU memory fraction, max_model_len or the number of sequences; or use more GPUs",
    ),
    make_rule(
        0,
        "driver-too-old",
        r"NVIDIA driver on your system is too old|driver version is insufficient|forward compatibility was attempted",
        "update the driver, or install an engine built for an older CUDA",
    ),
    make_rule(
        0,
        "device-type-unknown",
        r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver on your system|No accelerator .*available",
        "run nvidia-smi on the node; check CUDA_VISIBLE_DEVICES and that the engine's build fits the node",
    ),
    make_rule(
        0,
        "no-kernel-image",
        r"no kernel image is available for execution",
        "the engine's build does not support this GPU: install one that does",
    ),
    make_rule(
        1,
        "cuda-error",
        r"CUDA error: (?P<text>.+)|CUDA_ERROR_\w+|cudaError\w*",
        "look at the GPU: nvidia-smi -q, dmesg -T | grep Xid",
        "CUDA",
    ),
)

NETWORK: Tuple[Rule, ...] = (
    make_rule(
        0,
        "rendezvous-port-taken",
        r"server socket has failed to listen.*(?:EADDRINUSE|in use)|dist_init_port at .*not available",
        "give each group of ranks a port of its own",
        "the port of the rendezvous is taken",
    ),
    make_rule(
        0,
        "rendezvous-timeout",
        r"client socket has timed out .*trying to connect|client socket has failed to connect",
        "check from this node that rank 0's address and port can be reached, and that rank 0 runs",
        "rank 0 could not be reached",
    ),
    make_rule(
        0,
        "port-taken",
        r"Errno 98\] .*[Aa]ddress already in use|[Aa]ddress already in use",
        _PORT_HINT,
        "the HTTP port is taken",
    ),
    make_rule(
        0,
        "gloo-interface",
        r"Gloo connectFullMesh failed|gloo.*(?:connect|refused)",
        "set GLOO_SOCKET_IFNAME to the interface that reaches the other nodes",
        "Gloo picked an interface that does not reach the other ranks",
    ),
    make_rule(
        0,
        "memlock",
        r"ibv_reg_mr\w* failed.*(?:Cannot allocate|memory)|ibv_create_\w+ failed.*Cannot allocate",
        "raise the locked memory limit (ulimit -l unlimited) of the SSH session or service",
        "InfiniBand may not lock memory",
    ),
    make_rule(
        0,
        "shared-memory-full",
        r"posix_fallocate failed.*No space left|/dev/shm.*No space left|exit code: -7\b|Bus error",
        "enlarge /dev/shm, or remove stale psm_* and nccl-* files there",
        "shared memory (/dev/shm) is too small",
    ),
    make_rule(
        0,
        "open-files",
        r"Too many open files",
        "raise the limit of open files (nofile) on the node",
    ),
    make_rule(
        0,
        "disk-full",
        r"No space left on device",
        "free space on the node: weights cache, compile cache, /tmp",
        "a file system is full",
    ),
    make_rule(
        2,
        "peer-lost",
        r"remote process exited or there was a network error|Connection closed by (?:remote )?peer|socketProgress.*Connection reset",
        "look at the rank whose log ends first: this one is its victim",
        "another rank died or the network failed",
    ),
    make_rule(
        1,
        "nccl-system",
        r"NCCL error.*unhandled system error|unhandled system error",
        "check NCCL_SOCKET_IFNAME, NCCL_IB_HCA, memlock and /dev/shm; NCCL_DEBUG=WARN says which",
    ),
    make_rule(
        1,
        "nccl-error",
        r"NCCL error(?!.*remote process exited)|NCCL WARN .*(?:fail|error)|unhandled cuda error",
        "run again with NCCL_DEBUG=WARN and read the first NCCL WARN",
    ),
    make_rule(
        1,
        "collective-timeout",
        r"Watchdog caught collective operation timeout",
        "compare the SeqNum of all ranks: one hangs, or a link is down",
    ),
    make_rule(
        1,
        "watchdog",
        r"Scheduler watchdog timeout|watchdog timeout",
        "look at the other ranks and the fabric; raise --watchdog-timeout only for long compilations",
        "no progress: a collective or a kernel hangs",
    ),
)

SOFTWARE: Tuple[Rule, ...] = (
    make_rule(
        0, "numa-bind", r"Not enough allowed NUMA nodes", "set VLLM_CPU_OMP_THREADS_BIND=nobind"
    ),
    make_rule(
        0,
        "nvcc-missing",
        r"Could not find nvcc|nvcc: (?:command )?not found",
        "install the CUDA toolkit or set CUDA_HOME; or VLLM_USE_FLASHINFER_SAMPLER=0",
    ),
    make_rule(
        0,
        "packages-mismatch",
        r"is installed with version .* less than the minimum|undefined symbol|cannot open shared object file",
        "reinstall the engine's packages so that they fit one another",
    ),
    make_rule(
        0,
        "package-missing",
        r"PackageNotFoundError|No package metadata was found|ModuleNotFoundError",
        "install it into the engine's virtual environment",
    ),
    make_rule(
        1,
        "ready-timeout",
        r"Timed out waiting for engine core processes",
        "raise VLLM_ENGINE_READY_TIMEOUT_S; a slow disk or a download takes that long",
    ),
    make_rule(
        0,
        "illegal-instruction",
        r"died unexpectedly \(exit code: -4\)|Illegal instruction",
        "the engine's build needs a CPU feature this node lacks or mishandles: try dtype float32, or another build",
        "a worker died by SIGILL",
    ),
    make_rule(
        1,
        "permission",
        r"Permission denied",
        "let the user the engine runs as read and write there",
        "not permitted",
    ),
    make_rule(
        1,
        "packages-mismatch",
        r"ImportError: (?P<text>.+)",
        "reinstall the engine's packages so that they fit one another",
    ),
    make_rule(
        1,
        "worker-died",
        r"died unexpectedly \(exit code: -9\)",
        "look for the kernel's memory killer: dmesg -T",
        "a worker was killed, most likely for memory",
    ),
    make_rule(
        2,
        "worker-died",
        r"died unexpectedly \(exit code: -?\d+\)|crashed with exit code -?\d+",
        "read the worker's lines above it in the log",
    ),
    make_rule(
        2,
        "warmup-failed",
        r"Initialization failed\. warmup error",
        "read the traceback that follows it in the log",
        "the first request failed",
    ),
    make_rule(
        3,
        "health-stuck",
        r"Health check failed\. Server couldn't get a response",
        "the scheduler hangs, or one huge prefill blocks it",
    ),
    make_rule(
        3,
        "worker-exception",
        r"WorkerProc hit an exception",
        "a rank on another node may have died earlier: look at its log first",
    ),
    make_rule(
        3,
        "interrupted",
        r"KeyboardInterrupt: terminated",
        "somebody stopped it while it was loading",
        "it was told to stop",
    ),
)
