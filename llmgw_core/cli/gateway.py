"""`llmgw gateway`: runs it, makes keys for it, and writes its systemd unit."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llmgw_core.cli.output import print_note, print_result
from llmgw_core.errors import GatewayError, UsageError

_UNIT = """\
[Unit]
Description=llmgw gateway
After=network-online.target

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
TimeoutStopSec=90
LimitNOFILE=65536

[Install]
WantedBy=default.target
"""


def run_gateway(args: argparse.Namespace, argv: Sequence[str]) -> int:
    """Do what was asked. Returns the exit status.

    Raises:
        GatewayError: what it needs is not installed, or it cannot start.
        UsageError: a file or a flag is wrong.
    """
    _need_packages()
    home = _config_home()
    keys = args.keys or _if_there(home / "gateway-keys.toml")
    if args.action == "add-key":
        return _add_key(args, args.keys or home / "gateway-keys.toml")
    if args.action == "install":
        return _install(argv)
    # What aiohttp brings takes 0.2 s, which no other verb shall pay.
    from llmgw_core.gateway.main import run
    from llmgw_core.gateway.settings import Settings, load_settings

    config = args.config or _if_there(home / "gateway.toml")
    changes = _collect_changes(args)

    def load() -> Settings:
        settings = load_settings(config, changes)
        if settings.keys is None and keys is not None:
            return load_settings(config, {**changes, "keys": str(keys)})
        return settings

    return run(load, print_note)


def _collect_changes(args: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given, by the names of gateway.toml."""
    queue = {"waiting": args.waiting, "timeout_s": args.queue_timeout}
    return {
        "listen": args.listen,
        "keys": args.keys,
        "slots": args.slots,
        "drain_s": args.drain,
        "tls_certificate": args.tls_certificate,
        "tls_key": args.tls_key,
        "access_log": args.access_log,
        "admin_socket": args.socket,
        "allow_anonymous": args.allow_anonymous,
        "prefix_affinity": args.prefix_affinity,
        "engines": None if args.engine is None else [{"url": url} for url in args.engine],
        "queue": queue,
    }


def _add_key(args: argparse.Namespace, path: Path) -> int:
    from llmgw_core.gateway.keys import ApiKey, add_key

    models = None if args.models is None else tuple(args.models)
    secret = add_key(path, ApiKey(args.tenant, args.band, args.weight, models, args.admin))
    print_note(f"llmgw: its hash is in {path}; this is the key, shown once and kept nowhere:")
    print_result(secret)
    print_note(
        "llmgw: a running gateway takes it with SIGHUP (systemctl --user reload llmgw-gateway)"
    )
    return 0


def _install(argv: Sequence[str]) -> int:
    """Write the unit. It runs this very Python with the flags given here."""
    words = [word for word in argv if word != "install"]
    command = [sys.executable, "-m", "llmgw_core.cli.main", *words]
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = base / "systemd/user/llmgw-gateway.service"
    text = _UNIT.format(command=shlex.join(command).replace("%", "%%").replace("$", "$$"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}", error.strerror or "", "look at its folder"
        ) from None
    print_result(str(path))
    print_note(
        "llmgw: systemctl --user daemon-reload && systemctl --user enable --now llmgw-gateway"
    )
    print_note("llmgw: loginctl enable-linger keeps it running when you log out")
    return 0


def _need_packages() -> None:
    missing = [name for name in ("aiohttp", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise GatewayError(
            "the gateway's packages are not installed",
            f"{', '.join(missing)} is missing",
            "pip install 'llmgw[gateway]'",
        )


def _config_home() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "llmgw"


def _if_there(path: Path) -> Path | None:
    return path if path.is_file() else None
