"""How far an engine's start has come, read from its log. Pure.

Sources: vLLM 0.10 to 0.32 and SGLang 0.4.6 to 0.5.23; both change their wording, so each phase has several lines.
"""

import re
from typing import Iterable, Optional, Pattern, Tuple

from llmgw_core.agent.logtext import strip_prefix
from llmgw_core.domain.engine import EngineKind

PHASES = (
    "imports",
    "config",
    "distributed",
    "download",
    "weights",
    "compile",
    "kv-cache",
    "graphs",
    "warmup",
    "serving",
)
_PERCENT = r"[^|\n]{0,160}?(?P<percent>\d{1,3})%"

# A group `percent` is progress of the phase; a line of the phase without one leaves progress as it is.
_LINES: Tuple[Tuple[str, str], ...] = (
    (
        "config",
        r"non-default args: |Resolved architecture: |Using max model len \d|server_args=ServerArgs\(",
    ),
    (
        "distributed",
        (
            r"Initializing a V1 LLM engine|world_size=\d+ rank=\d+|is assigned as DP rank|(?:vLLM|sglang) is using nccl"
            r"|Init torch distributed begin|headless multiproc executor|data parallel engine\(s\) in headless mode"
        ),
    ),
    ("download", r"(?:Fetching \d+ files|\.(?:safetensors|bin|gguf)):" + _PERCENT + r"\|"),
    ("download", r"Time spent downloading weights"),
    ("weights", r"(?:Loading \w+ checkpoint shards|Multi-thread loading shards):" + _PERCENT),
    ("weights", r"Starting to load model|Load weight begin"),
    (
        "compile",
        (
            r"for vLLM's torch\.compile|Dynamo bytecode transform|Compiling a graph|compiled graph\(s\)"
            r"|torch\.compile took"
        ),
    ),
    (
        "kv-cache",
        r"Available KV cache memory|KV cache size: |KV Cache is allocated|Memory pool end",
    ),
    ("graphs", r"Capturing (?:CUDA graphs|batches|num tokens)" + _PERCENT + r"\|"),
    ("graphs", r"Capturing CUDA graphs|[Cc]apture .*?(?:cuda|CUDA) graph begin"),
    (
        "warmup",
        (
            r"init engine \(profile|max_total_num_tokens=\d|Starting vLLM (?:API )?server"
            r"|Uvicorn running on |Graph capturing finished|[Cc]apture .*?(?:cuda|CUDA) graph end"
        ),
    ),
)
_RULES: Tuple[Tuple[str, Pattern[str]], ...] = tuple(
    (phase, re.compile(pattern)) for phase, pattern in _LINES
)
_LOADED = re.compile(r"Loading weights took |Model loading took |Load weight end")
_SERVING = {
    EngineKind.VLLM: re.compile(r"Application startup complete"),
    # uvicorn says "startup complete" before SGLang's warm-up.
    EngineKind.SGLANG: re.compile(r"The server is fired up and ready to roll"),
}


class PhaseTracker:
    """The furthest phase of a start. Several processes write into one log: a late rank never moves it back."""

    def __init__(self, kind: EngineKind) -> None:
        self._serving = _SERVING[kind]
        self.phase: Optional[str] = None  # None: nothing was printed yet
        self.progress: Optional[float] = None  # of the phase, 0 to 1; None: not told
        self.is_loaded = False  # the weights are in memory

    @property
    def is_loading(self) -> bool:
        """Whether the log says that it loads: more than that something was printed."""
        return self.phase is not None and self.phase != PHASES[0]

    def feed(self, lines: Iterable[str]) -> None:
        """Take in lines of the log, in order."""
        for line in lines:
            self._feed_line(strip_prefix(line))

    def _feed_line(self, text: str) -> None:
        if self.phase == PHASES[-1]:
            return
        if self.phase is None:
            self.phase = PHASES[0]
        if self._serving.search(text):
            self._enter("serving", None)
            return
        if _LOADED.search(text):
            self.is_loaded = True
            self._enter("weights", 1.0)
            return
        for phase, pattern in _RULES:
            match = pattern.search(text)
            if match is not None:
                percent = match.groupdict().get("percent")
                self._enter(phase, None if percent is None else min(1.0, int(percent) / 100))
                return

    def _enter(self, phase: str, progress: Optional[float]) -> None:
        now, then = PHASES.index(phase), PHASES.index(self.phase or PHASES[0])
        if now < then:
            return
        if now > then:
            self.phase, self.progress = phase, progress
        elif progress is not None:
            self.progress = progress
