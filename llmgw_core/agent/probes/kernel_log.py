"""The kernel log as far as this user may read it: /dev/kmsg, else journalctl and dmesg. Unknown where none of them speaks.

`LLMGW_KERNEL_LOG` names a file to read instead.
"""

import os
import time
from dataclasses import dataclass, field
from typing import List, Mapping, Optional, Tuple

from llmgw_core.agent.probes.commands import CommandResult, Pending, start_together
from llmgw_core.agent.probes.files import find_program, read_text
from llmgw_core.agent.probes.xids import KernelEvents, parse_kernel_log

KMSG = "/dev/kmsg"
# Reading the log must not slow a reading of the GPUs: what is not there by then is unknown.
TOOLS_TIMEOUT_S = 1.0
_MAX_RECORD_BYTES = 8192
_MAX_RECORDS = 50_000
_JOURNAL = ("journalctl", "-k", "-b", "--no-pager", "-q", "-o", "short-unix", "-n", "20000")
_DMESG = ("dmesg",)


@dataclass(frozen=True)
class KernelLog:
    """What a kernel log says of NVIDIA GPUs, and whether it can be believed when it says nothing."""

    events: KernelEvents = field(default_factory=KernelEvents)
    is_readable: bool = False
    covers_boot: bool = (
        False  # its first line is the kernel's first: no error since boot is missing
    )


class KernelLogReading:
    """A reading under way, so that nvidia-smi may run meanwhile."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._texts: List[Tuple[str, bool]] = []  # (text, it begins with the boot)
        self._pending: Optional[Pending] = None
        chosen = env.get("LLMGW_KERNEL_LOG")
        if chosen is not None:
            text = read_text(chosen)
            self._texts = [] if text is None else [(text, False)]
            return
        kmsg = None if is_simulated(env) else read_kmsg()
        if kmsg is not None:
            self._texts.append(kmsg)
        if kmsg is None or not kmsg[1]:
            self._pending = _start_tools(env, has_kmsg=kmsg is not None)

    @property
    def is_cheap(self) -> bool:
        """Whether it was read without starting a command."""
        return self._pending is None

    def finish(self) -> KernelLog:
        """The log. Takes at most `TOOLS_TIMEOUT_S`, and a second to end them."""
        results = [] if self._pending is None else self._pending.finish(TOOLS_TIMEOUT_S)
        texts = list(self._texts)
        texts += [(result.stdout, False) for result in results if _has_spoken(result)]
        if not texts:
            return KernelLog()
        boot = read_boot_epoch()
        # The longest memory is the journal's, which comes last. The same line twice must not count twice.
        best = max((parse_kernel_log(text, boot) for text, _ in texts), key=lambda e: len(e.xids))
        covers = any(is_whole for _, is_whole in texts)
        return KernelLog(best, is_readable=True, covers_boot=covers)


def is_simulated(env: Mapping[str, str]) -> bool:
    """Whether the hardware is a pretended one, of which this machine's kernel knows nothing."""
    return env.get("LLMGW_SYSFS_ROOT", "/sys") not in ("", "/sys")


def read_kmsg(path: str = KMSG) -> Optional[Tuple[str, bool]]:
    """(all records one a line, whether they begin with the first since boot); None when it may not be read.

    Source: Documentation/ABI/testing/dev-kmsg.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        records = _read_records(fd)
    finally:
        os.close(fd)
    if not records:
        return None
    first = records[0].split(b",", 2)
    is_whole = len(first) > 1 and first[1] == b"0"
    wanted = [record for record in records if b"NVRM" in record]
    return b"\n".join(wanted).decode("utf-8", "replace"), is_whole


def _read_records(fd: int) -> List[bytes]:
    records: List[bytes] = []
    for _ in range(_MAX_RECORDS):
        try:
            record = os.read(fd, _MAX_RECORD_BYTES)
        except BrokenPipeError:
            continue  # overwritten while it was read: the next one is there
        except OSError:
            break
        if not record:
            break
        records.append(record.split(b"\n", 1)[0])
    return records


def read_boot_epoch() -> Optional[float]:
    """UTC epoch seconds at which the kernel's clock of log lines began."""
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)


def _start_tools(env: Mapping[str, str], *, has_kmsg: bool) -> Optional[Pending]:
    wanted = [_JOURNAL] if has_kmsg else [_JOURNAL, _DMESG]
    commands = [
        [program, *command[1:]]
        for command in wanted
        for program in [find_program(command[0], env)]
        if program is not None
    ]
    return start_together(commands, env) if commands else None


def _has_spoken(result: CommandResult) -> bool:
    """A log that may not be read is empty, or says that it has no entries: a kernel always has some."""
    lines = (line for line in result.stdout.split("\n") if line.strip())
    return result.code == 0 and any(not line.startswith("--") for line in lines)
