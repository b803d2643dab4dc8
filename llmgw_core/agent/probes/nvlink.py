"""NVLinks that are down, from `nvidia-smi nvlink -s`. Pure."""

import re
from typing import Dict

_GPU = re.compile(r"GPU\s+(\d{1,4}):")
_LINK = re.compile(r"\s*Link\s+\d{1,3}:\s*(.*)")


def parse_inactive_links(text: str) -> Dict[int, int]:
    """How many of its links are inactive, by index of the GPU: only where others of the same GPU are up.

    Lines: `GPU 0: NVIDIA H200 (UUID: …)`, below it `Link 0: 26.562 GB/s` or `Link 1: <inactive>`. A card that has
    none of its links connected, or no NVLink at all, misses nothing.
    """
    down: Dict[int, int] = {}
    is_up: Dict[int, bool] = {}
    index = -1
    for line in text.split("\n"):
        gpu = _GPU.match(line)
        link = _LINK.fullmatch(line)
        if gpu is not None:
            index = int(gpu.group(1))
        elif link is not None and index >= 0:
            if "inactive" in link.group(1).lower():
                down[index] = down.get(index, 0) + 1
            else:
                is_up[index] = True
    return {number: count for number, count in down.items() if is_up.get(number)}
