"""Memory held on simulated GPUs: one file per GPU and process, which the fake nvidia-smi lists while that process lives.

`<folder>/gpus.json` describes the GPUs, `<folder>/holders/<index>/<pid>` holds `{"mib", "name", "start_ticks"}`.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GPUS_VARIABLE = "LLMGW_DEMO_GPUS"
_START_TICKS = 19  # of the fields after the command. Source: proc(5)


@dataclass(frozen=True)
class HeldGpu:
    """One GPU this process may hold memory on."""

    folder: Path
    index: int
    total_mib: int

    def hold(self, mib: int, name: str) -> None:
        """Hold that much from now on, until this process ends."""
        holders = self.folder / "holders" / str(self.index)
        holders.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"mib": mib, "name": name, "start_ticks": read_start_ticks("self")})
        fresh = holders / f".{os.getpid()}"
        fresh.write_text(text, "utf-8")
        fresh.replace(holders / str(os.getpid()))

    def note_work(self) -> None:
        """Note that it computes now; shows as utilization for a second or two."""
        (self.folder / f"busy-{self.index}").touch()


def find_gpus(env: Mapping[str, str]) -> tuple[HeldGpu, ...]:
    """Return the GPUs of CUDA_VISIBLE_DEVICES, by index or uuid, or all of them; none where there is no simulation."""
    folder = Path(env.get(GPUS_VARIABLE, ""))
    try:
        gpus = json.loads((folder / "gpus.json").read_text("utf-8"))["gpus"]
    except OSError:
        return ()
    by_name = {str(gpu["index"]): gpu for gpu in gpus} | {gpu["uuid"]: gpu for gpu in gpus}
    visible = env.get("CUDA_VISIBLE_DEVICES")
    names = [str(gpu["index"]) for gpu in gpus] if visible is None else visible.split(",")
    found = [by_name[name.strip()] for name in names if name.strip() in by_name]
    return tuple(HeldGpu(folder, gpu["index"], gpu["memory_total_mib"]) for gpu in found)


def is_demo_gone(env: Mapping[str, str]) -> bool:
    """Return whether the simulation this process belongs to was removed: then nobody is left to end it."""
    folder = env.get(GPUS_VARIABLE)
    return bool(folder) and not Path(folder or "/").is_dir()


def read_start_ticks(pid: str) -> int:
    """Return when that process started, in clock ticks since boot; 0 when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[_START_TICKS])
