"""A process's name as vLLM's workers change theirs: title over the command line, environment gone."""

from pathlib import Path

_COMM_BYTES = 15  # what the kernel keeps
# Of the fields after the command in /proc/PID/stat. Source: proc(5), arg_start to env_end.
_ARG_START = 45
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def set_title(title: str, *, keep_environment: bool = False) -> None:
    """Write the title over this process's command line and, as setproctitle does, over its environment.

    Args:
        keep_environment: leave the environment as it is, as setproctitle does with SPT_NOENV=1.
    """
    set_name(title)
    start, end, env_start, env_end = _read_areas()
    if start == 0:
        return
    has_one_area = not keep_environment and env_start >= end
    _overwrite(start, (env_end if has_one_area else end) - start, title.encode("utf-8"))


def set_name(name: str) -> None:
    """Set the short name that `ps -o comm` shows."""
    Path("/proc/self/comm").write_bytes(name.encode("utf-8")[:_COMM_BYTES])


def die_with_parent(number: int) -> None:
    """Ask for that signal when the parent ends, as SGLang's processes do."""
    try:
        import ctypes
    except ImportError:  # a Python built without libffi
        return
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, number)


def _read_areas() -> tuple[int, int, int, int]:
    """(start, end) of the arguments, then of the environment, in this process's memory; zeros where it is hidden."""
    text = Path("/proc/self/stat").read_text("utf-8", "replace")
    fields = text.rpartition(")")[2].split()[_ARG_START : _ARG_START + 4]
    start, end, env_start, env_end = (int(field) for field in fields)
    return start, end, env_start, env_end


def _overwrite(start: int, length: int, title: bytes) -> None:
    try:
        import ctypes
    except ImportError:
        return
    text = title[: length - 1]
    ctypes.memmove(start, text + b"\0" * (length - len(text)), length)
