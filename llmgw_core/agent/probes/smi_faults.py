"""Why nvidia-smi gave no GPUs, in a sentence an operator can act on. Pure.

Its exit status follows NVML's error codes, but texts are surer: the same cause has come with several.
"""

import re
from typing import NamedTuple, Optional, Sequence, Tuple

from llmgw_core.domain.inventory import NodeFault

_SHOWN_CHARS = 200
_SEGFAULT_CODES = (-11, 139)  # by itself, or told by a shell around it
_DENIED_CODE = 4  # NVML_ERROR_NO_PERMISSION


class _Cause(NamedTuple):
    pattern: str
    code: str
    message: str
    hint: str


_CAUSES: Tuple[_Cause, ...] = (
    _Cause(
        r"driver/library version mismatch",
        "driver-mismatch",
        "the NVIDIA driver was upgraded under the loaded kernel module; what runs goes on, nothing new starts",
        "reboot the node, or stop its GPU processes and reload the nvidia modules",
    ),
    _Cause(
        r"couldn't communicate with the nvidia driver|driver not loaded",
        "no-driver",
        "the NVIDIA driver is not loaded",
        "load it (modprobe nvidia) and look at `dmesg | grep -i nvrm`; right after boot it may only need a minute",
    ),
    _Cause(
        r"couldn't find libnvidia-ml|nvml shared library",
        "driver-library-missing",
        "nvidia-smi does not find the driver's library libnvidia-ml.so",
        "install the driver's user-space libraries, or pass them into the container",
    ),
    _Cause(
        r"no supported gpus were found|no devices were found|unable to determine the number of gpus",
        "no-devices",
        "the NVIDIA driver finds no GPU",
        "look at `lspci -d 10de:` and `dmesg | grep -i nvrm`; a node without GPUs needs no driver",
    ),
    _Cause(
        r"failed to initialize nvml: unknown error",
        "nvml-unknown",
        "the NVIDIA driver refuses this session (NVML: Unknown Error)",
        "in a container: it lost its devices after a systemd reload, start it anew; else reboot the node",
    ),
    _Cause(
        r"insufficient permissions",
        "smi-denied",
        "this user may not ask the NVIDIA driver",
        "look at the modes of /dev/nvidia*",
    ),
    _Cause(
        r"device handle for\s+gpu",
        "gpu-lost",
        "a GPU does not answer the driver",
        "look for `Xid` in the kernel log; a reboot of the node usually brings it back",
    ),
)


def explain_failure(
    text: str, code: Optional[int], pci_gpus: Optional[Sequence[str]] = None
) -> Optional[NodeFault]:
    """What is wrong when nvidia-smi ended with `code` and said `text` (both streams).

    None when the answer is that this node has no GPU: the driver finds none, and PCI lists none.

    Args:
        pci_gpus: PCI addresses of the NVIDIA GPUs the node has; None when they cannot be listed.
    """
    joined = " ".join(text.split())
    for cause in _CAUSES:
        if re.search(cause.pattern, joined, re.IGNORECASE):
            if cause.code == "no-devices" and pci_gpus is not None and not pci_gpus:
                return None
            return NodeFault(cause.code, cause.message + _count_on_pci(pci_gpus), cause.hint)
    return _explain_code(joined, code)


def explain_timeout(timeout_s: float, *, still_runs: bool) -> NodeFault:
    """nvidia-smi gave no answer; `still_runs`: not even SIGTERM ended it."""
    if still_runs:
        return NodeFault(
            "smi-hung",
            "nvidia-smi hangs in the driver and cannot be ended; the state of the GPUs is not known",
            "look for `Xid` in the kernel log; the node needs a reboot. llmgw does not start another meanwhile",
        )
    return NodeFault(
        "smi-timeout",
        f"nvidia-smi did not answer within {timeout_s:g} s; the state of the GPUs is not known",
        "try `nvidia-smi` on the node; `nvidia-smi -pm 1` (persistence mode) makes it answer faster",
    )


def explain_missing_gpus(missing: Sequence[str]) -> NodeFault:
    """GPUs that PCI lists as bound to the driver and that nvidia-smi does not show."""
    names = ", ".join(missing)
    return NodeFault(
        "gpu-missing",
        f"PCI has {len(missing)} more NVIDIA GPU(s) than nvidia-smi shows: {names}",
        "look for `NVRM` in the kernel log; indices of the GPUs behind the gap have moved",
    )


def explain_cut_output() -> NodeFault:
    """Rows came, and one of them ended early."""
    return NodeFault(
        "smi-garbled",
        "the output of nvidia-smi breaks off; there may be more GPUs than are shown",
        "try `nvidia-smi` on the node",
    )


def explain_not_started(why: str) -> NodeFault:
    """There is an nvidia-smi, and it cannot be executed."""
    return NodeFault("smi-failed", f"nvidia-smi cannot be started: {_shorten(why)}", "try it there")


def _explain_code(text: str, code: Optional[int]) -> NodeFault:
    if code in _SEGFAULT_CODES:
        return NodeFault(
            "smi-crashed",
            "nvidia-smi crashes",
            "its version and the driver's may differ: compare them, or reinstall the driver",
        )
    if code == _DENIED_CODE:
        cause = next(cause for cause in _CAUSES if cause.code == "smi-denied")
        return NodeFault(cause.code, cause.message, cause.hint)
    said = f'it says "{_shorten(text)}"' if text else "it says nothing"
    return NodeFault(
        "smi-failed", f"nvidia-smi ended with status {code}: {said}", "try `nvidia-smi` on the node"
    )


def _count_on_pci(pci_gpus: Optional[Sequence[str]]) -> str:
    if pci_gpus is None:
        return ""
    if not pci_gpus:
        return " (PCI lists no NVIDIA GPU)"
    return f" (PCI lists {len(pci_gpus)}: {', '.join(pci_gpus[:8])})"


def _shorten(text: str) -> str:
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return printable if len(printable) <= _SHOWN_CHARS else printable[:_SHOWN_CHARS] + "…"
