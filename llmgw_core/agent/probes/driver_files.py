"""What the NVIDIA kernel module says in /proc without touching a GPU: it answers while nvidia-smi hangs.

Source: README of the NVIDIA Linux driver, chapter "The /proc Filesystem Interface".
"""

import re
from typing import List, NamedTuple, Optional

from llmgw_core.agent.probes.files import list_names, read_text

_MOST_GPUS = 64


class DriverGpu(NamedTuple):
    """Who a GPU is, by the module that drives it."""

    bus_id: str
    name: Optional[str] = None
    uuid: Optional[str] = None


def read_driver_gpus(proc_root: str = "/proc") -> List[DriverGpu]:
    """The physical GPUs in order of address; empty where the module is not loaded or the folder hidden."""
    folder = f"{proc_root}/driver/nvidia/gpus"
    names = sorted(list_names(folder) or ())[:_MOST_GPUS]
    return [
        parse_information(name.lower(), read_text(f"{folder}/{name}/information") or "")
        for name in names
    ]


def parse_information(bus_id: str, text: str) -> DriverGpu:
    """Lines: `Model: \\t\\t NVIDIA H200`, `GPU UUID: \\t GPU-6c1f…`; question marks where the GPU never answered."""
    model = re.search(r"^Model:[ \t]+(\S[^\n]{0,100})", text, re.MULTILINE)
    uuid = re.search(r"^GPU UUID:[ \t]+(GPU-[0-9a-f-]{1,60})", text, re.MULTILINE)
    name = model.group(1).strip() if model else ""
    is_known = name.isprintable() and name not in ("", "Unknown")
    return DriverGpu(bus_id, name if is_known else None, uuid.group(1) if uuid else None)


def read_loaded_driver(proc_root: str = "/proc") -> Optional[str]:
    """Version of the loaded kernel module, which is not always that of the installed libraries."""
    return parse_loaded_driver(read_text(f"{proc_root}/driver/nvidia/version") or "")


def parse_loaded_driver(text: str) -> Optional[str]:
    """Line: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024`."""
    match = re.search(
        r"^NVRM version:[^\n]*?\s(\d{3,4}(?:\.\d{1,4}){1,3})\s", text + "\n", re.MULTILINE
    )
    return match.group(1) if match else None
