"""`llmgw demo`: makes a simulated cluster, shows it in the console, and leaves nothing behind."""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from llmgw_core.demo.cleanup import end_cluster, remove_files
from llmgw_core.demo.cluster import SCENARIOS, make_cluster, node_folder
from llmgw_core.errors import StopIncomplete, UsageError

_STRANGER = Path(__file__).resolve().parent / "stranger.py"
# Node, GPU and memory of the job that is not ours.
_HELD = ("h100-3", 6, 22528)


def main(argv: Sequence[str]) -> int:
    """Run `llmgw demo ARGV`; returns its exit code.

    Raises:
        UsageError: a directory cannot be used, or is no demo.
        StopIncomplete: at the end, a process would not end.
    """
    args = build_parser().parse_args(argv)
    if args.stop is not None:
        stop_demo(args.stop)
        remove_files(args.stop)
        return 0
    if args.print:
        sys.stdout.write(f"{_make(_choose_folder(args.root), args.scenario)}\n")
        return 0
    if args.keep:
        folder = _choose_folder(args.root)
        cluster = _make(folder, args.scenario)
        code = _show(cluster)
        sys.stderr.write(
            f"llmgw demo: its engines go on: llmgw --cluster {cluster} status; to end it: llmgw demo --stop {folder}\n"
        )
        return code
    with open_demo(args.root, args.scenario) as cluster:
        return _show(cluster)


def build_parser() -> argparse.ArgumentParser:
    """The arguments of `llmgw demo`."""
    parser = argparse.ArgumentParser(
        prog="llmgw demo",
        description="A simulated cluster on this machine: real agents, toy engines, no GPU needed.",
    )
    parser.add_argument(
        "--root", metavar="DIR", type=Path, help="where its files go (default: a temporary one)"
    )
    parser.add_argument("--scenario", choices=SCENARIOS, default=SCENARIOS[0])
    parser.add_argument(
        "--keep", action="store_true", help="leave engines and files when the console closes"
    )
    parser.add_argument(
        "--print", action="store_true", help="only make it, and print the path of its cluster.toml"
    )
    parser.add_argument(
        "--stop", metavar="DIR", type=Path, help="end the demo in DIR and remove its files"
    )
    return parser


@contextmanager
def open_demo(
    root: Path | None = None, scenario: str = "mixed", load_s: float | None = None
) -> Iterator[Path]:
    """A simulated cluster for the length of the block: its cluster.toml. Everything started in it ends with it.

    Args:
        root: where its files go, which then stay; None: a temporary directory, which does not.

    Raises:
        UsageError: the directory cannot be used, or there is no such scenario.
        StopIncomplete: at the end, a process would not end.
    """
    folder = _choose_folder(root)
    stranger: subprocess.Popen[bytes] | None = None
    try:
        cluster = _make(folder, scenario, load_s)
        stranger = _start_stranger(folder)
        yield cluster
    finally:
        if stranger is not None:
            stranger.kill()
            stranger.wait()
        if (folder / "cluster.toml").is_file():
            stop_demo(folder)
        if root is None:
            remove_files(folder)


def stop_demo(root: Path) -> None:
    """End every agent and engine of the simulated cluster below `root`; its files stay.

    Raises:
        UsageError: there is no demo.
        StopIncomplete: a process would not end.
    """
    left = end_cluster(root)
    if left:
        pids = ", ".join(str(pid) for pid in left)
        raise StopIncomplete(
            "the demo did not end whole", f"pids {pids} live", f"look at them: ps -fp {left[0]}"
        )


def _choose_folder(root: Path | None) -> Path:
    return root.absolute() if root else Path(tempfile.mkdtemp(prefix="llmgw-demo-"))


def _make(folder: Path, scenario: str, load_s: float | None = None) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return make_cluster(folder, scenario, load_s)
    except OSError as error:
        raise UsageError(
            f"the demo's files cannot be written to {folder}",
            error.strerror or str(error),
            "name a writable directory with --root",
        ) from error


def _show(cluster: Path) -> int:
    """The exit code of the console: a process of its own, because the core does not know it."""
    command = [sys.executable, "-m", "llmgw_tui", "--cluster", str(cluster)]
    process = subprocess.Popen(command)

    def pass_on(_number: int, _frame: object) -> None:
        process.terminate()

    # Whatever ends us ends the console first, and then the demo is cleaned up.
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the console has it, too
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_stranger(root: Path) -> "subprocess.Popen[bytes] | None":
    name, index, mib = _HELD
    gpus = node_folder(root, name) / "gpus"
    if not gpus.is_dir():
        return None
    command = [sys.executable, "-I", "-S", str(_STRANGER), str(gpus), str(index), str(mib)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
