"""`llmgw queue`: who waits at the gateway, who runs, and pause, resume and drain. Over the gateway's Unix socket."""

import argparse
import asyncio
import json
import os
import sys
from typing import Any

from llmgw_core.agent.gateways import VERBS, is_safe, list_folders, read_queue, steer_gateway
from llmgw_core.cli.output import print_result, render_duration, render_table
from llmgw_core.errors import UsageError

WATCH_S = 1.0


async def run_queue(args: argparse.Namespace) -> int:
    """Print the queue, or change something and print it then."""
    path = _find_socket(args)
    for verb in VERBS:
        wanted = getattr(args, verb)
        if wanted is not None:
            kind, equals, name = wanted.partition("=")
            if not equals or kind not in ("model", "tenant", "engine"):
                raise UsageError(f"--{verb} {wanted!r} names nothing", "", f"--{verb} model=NAME")
            await asyncio.to_thread(steer_gateway, path, verb, kind, name)
    while True:
        state = await asyncio.to_thread(read_queue, path)
        text = json.dumps(state, indent=2, sort_keys=True) if args.json else render_queue(state)
        if args.watch and not args.json and sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        print_result(text)
        sys.stdout.flush()
        if not args.watch:
            return 0
        await asyncio.sleep(WATCH_S)


def render_queue(state: dict[str, Any]) -> str:
    """The document as tables."""
    return f"{_render_models(state)}\n\n{_render_tenants(state)}\n\n{_render_engines(state)}"


def _render_models(state: dict[str, Any]) -> str:
    return render_table(
        (
            "MODEL",
            "STATUS",
            "SLOTS",
            "RUNNING",
            "WAITING",
            "OLDEST",
            "ADMITTED",
            "REFUSED",
            "EXPIRED",
        ),
        (
            (
                item["model"],
                _flags(item),
                item["slots"],
                item["running"],
                item["waiting"],
                render_duration(item["oldest_wait_s"]),
                item["admitted"],
                sum(item["refused"].values()),
                item["expired"],
            )
            for item in state["models"]
        ),
    )


def _render_tenants(state: dict[str, Any]) -> str:
    return render_table(
        (
            "MODEL",
            "BAND",
            "TENANT",
            "WEIGHT",
            "RUNNING",
            "WAITING",
            "OLDEST",
            "REQ/S",
            "TOK/S",
            "SHARE",
            "REFUSED",
        ),
        (
            (
                model["model"],
                item["band"],
                item["tenant"] + (" (paused)" if item["paused"] else ""),
                item["weight"],
                item["running"],
                item["waiting"],
                None if item["oldest_wait_s"] is None else render_duration(item["oldest_wait_s"]),
                f"{item['admitted_per_s']:.1f}",
                f"{item['tokens_per_s']:.0f}",
                None
                if item["share"] is None
                else f"{item['share']:.0%} of {item['weight_share']:.0%}",
                ", ".join(f"{reason} {number}" for reason, number in item["refused"].items()),
            )
            for model in state["models"]
            for item in model["tenants"]
        ),
    )


def _render_engines(state: dict[str, Any]) -> str:
    return render_table(
        (
            "ENGINE",
            "STATE",
            "SLOTS",
            "RUNNING",
            "ITS RUNNING",
            "ITS WAITING",
            "KV",
            "FAILED",
            "TROUBLE",
        ),
        (
            (
                item["name"],
                item["state"] + (" (draining)" if item["draining"] else ""),
                item["slots"],
                item["running"],
                item["engine_running"],
                item["engine_waiting"],
                None if item["kv_usage"] is None else f"{item['kv_usage']:.0%}",
                item["failures"],
                item["trouble"],
            )
            for item in state["engines"]
        ),
    )


def _flags(item: dict[str, Any]) -> str:
    words = [item["status"], *(name for name in ("paused", "draining") if item[name])]
    return ", ".join(words)


def _find_socket(args: argparse.Namespace) -> str:
    if args.socket is not None:
        return str(args.socket)
    name = f"gateway-{args.port}.sock"
    folders = list_folders(os.environ)
    found = (
        str(folder / name) for folder in folders if is_safe(folder) and (folder / name).exists()
    )
    return next(found, str(folders[0] / name))
