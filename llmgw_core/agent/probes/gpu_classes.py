"""From a product name to a GPU class and a compute capability. Pure.

Names are cut into whole tokens and compared as such: as text L4 is in L40 is in L40S, H200 is in GH200.
"""

import re
from typing import List, Optional, Tuple

from llmgw_core.domain.units import round_gib

MAX_SLUG_CHARS = 48

# Memory that belongs to the whole machine; the driver gives none, or a number that is not the pool's.
UNIFIED_MEMORY = frozenset({"gb10", "n1x", "orin", "thor", "xavier", "nvgpu"})

_BRANDS = frozenset(
    {
        "nvidia",
        "tesla",
        "geforce",
        "quadro",
        "grid",
        "corporation",
        "amd",
        "instinct",
        "radeon",
        "oam",
    }
)
# Say how a card is built or sold; memory and class come from elsewhere.
_FORM_FACTORS = frozenset(
    {
        "pcie",
        "fhhl",
        "ac",
        "blackwell",
        "server",
        "workstation",
        "edition",
        "generation",
        "max",
        "q",
        "gpu",
        "nvgpu",
        "with",
    }
)
_FORM_FACTOR = re.compile(r"sxm\d?|hbm\d\w?|\d+gb?")

# Source: developer.nvidia.com/cuda-gpus. First match wins. Compared with the whole short name: "rtx-4090-laptop".
_CAPABILITY_BY_MODEL: Tuple[Tuple[str, str], ...] = (
    (r"rtx-pro-\d+.*", "12.0"),
    (r"rtx-50[5-9]0.*", "12.0"),
    (r"rtx-40[5-9]0.*|rtx-\d+-(sff-)?ada.*", "8.9"),
    (r"rtx-a\d+.*|rtx-30[5-9]0.*", "8.6"),
    (r"titan-rtx|rtx-20[6-8]0.*|rtx-[34568]000|gtx-16[56]0.*", "7.5"),
    (r"titan-v.*", "7.0"),
    (r"gtx-10[5-8]0.*|titan-xp?", "6.1"),
)
# Compared with its first token: "h100" of "h100-nvl", "v100dx" of the virtual GPU "v100dx-16q".
_CAPABILITY_BY_TOKEN: Tuple[Tuple[str, str], ...] = (
    (r"gb10", "12.1"),
    (r"thor", "11.0"),
    (r"g?b300", "10.3"),
    (r"g?b[12]00", "10.0"),
    (r"gh200|h[128]00l?|h20", "9.0"),
    (r"l4|l20|l40[sg]?", "8.9"),
    (r"orin", "8.7"),
    (r"a2|a10|a10[gm]|a16|a40", "8.6"),
    (r"a100[a-z]*|a800[a-z]*|a30", "8.0"),
    (r"t4g?|t1000|t600|t400", "7.5"),
    (r"xavier", "7.2"),
    (r"v100[a-z]*", "7.0"),
    (r"p4|p6|p40|p[2456]000", "6.1"),
    (r"p100", "6.0"),
)
# By the first and last device id of a family's chips. Source: pci.ids.
_CAPABILITY_BY_DEVICE: Tuple[Tuple[int, int, str], ...] = (
    (0x15F0, 0x15FF, "6.0"),
    (0x1B00, 0x1D7F, "6.1"),
    (0x1D81, 0x1DFF, "7.0"),
    (0x1E00, 0x1FFF, "7.5"),
    (0x2080, 0x20FF, "8.0"),
    (0x2180, 0x21FF, "7.5"),
    (0x2200, 0x25FF, "8.6"),
    (0x2300, 0x23FF, "9.0"),
    (0x2680, 0x28FF, "8.9"),
    (0x2900, 0x29FF, "10.0"),
    (0x2B80, 0x2DFF, "12.0"),
    (0x2E00, 0x2E7F, "12.1"),
    (0x3180, 0x31FF, "10.3"),
)
# A virtual GPU's profile: its GPU, how it is cut, GiB, and what it is licensed for.
_VIRTUAL = re.compile(r".*-\d{1,3}[ABCQ](?:ME)?")


def name_gpu_class(name: Optional[str], memory_total_mib: Optional[int]) -> Optional[str]:
    """The class by which GPUs are counted and asked for, e.g. `h100-80g`, `l40s-45g`, `gb10-uma`.

    The number is the driver's total in whole GiB, rounded. None when the product or its memory is not known.
    """
    if not name:
        return None
    slug = name_model(name)
    if has_unified_memory(name):
        return f"{slug}-uma"
    if memory_total_mib is None:
        return None
    return f"{slug}-{round_gib(memory_total_mib)}g"


def name_model(name: str) -> str:
    """The product in short: `NVIDIA GeForce RTX 4090` is `rtx-4090`, `NVIDIA H100 80GB HBM3` is `h100`.

    Lower case letters, digits, dots and hyphens; never empty.
    """
    tokens = _tokens(name)
    kept = [
        token
        for number, token in enumerate(tokens)
        if token not in _BRANDS
        and token not in _FORM_FACTORS
        # A number of gigabytes never comes first: it would be the product.
        and not (number > 0 and _FORM_FACTOR.fullmatch(token))
    ]
    return "-".join(kept)[:MAX_SLUG_CHARS].strip("-.") or "gpu"


def has_unified_memory(name: str) -> bool:
    """Whether the GPU of that name shares the machine's memory, so that the driver gives no total."""
    return bool(UNIFIED_MEMORY.intersection(_tokens(name)))


def guess_compute_capability(name: Optional[str]) -> Optional[str]:
    """Compute capability of a product, e.g. "9.0", for drivers that do not tell; None for a name not known."""
    if not name:
        return None
    slug = name_model(name)
    first = slug.split("-")[0]
    by_model = (cc for pattern, cc in _CAPABILITY_BY_MODEL if re.fullmatch(pattern, slug))
    by_token = (cc for pattern, cc in _CAPABILITY_BY_TOKEN if re.fullmatch(pattern, first))
    return next(by_model, None) or next(by_token, None)


def guess_capability_of_device(device_id: Optional[str]) -> Optional[str]:
    """Compute capability by PCI device id, e.g. "2335", for names that say nothing; None for one not known."""
    if device_id is None or not re.fullmatch(r"[0-9a-f]{4}", device_id):
        return None
    number = int(device_id, 16)
    return next((cc for low, high, cc in _CAPABILITY_BY_DEVICE if low <= number <= high), None)


def is_virtual_gpu(name: str) -> bool:
    """Whether the name is a vGPU profile, e.g. `NVIDIA H100L-2-24C`: a part of a card."""
    return _VIRTUAL.fullmatch(name.strip()) is not None


def _tokens(name: str) -> List[str]:
    return re.findall(r"[a-z0-9]+(?:\.[a-z0-9]+)*", name.lower())
