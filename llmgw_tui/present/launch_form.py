"""The launch form: what was typed becomes a request, or says per field what is wrong. Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.inventory import Contact, FleetSnapshot
from llmgw_core.domain.launch import LaunchRequest
from llmgw_tui.present.detail import memory_text
from llmgw_tui.present.settings import read_settings
from llmgw_tui.present.states import node_state
from llmgw_tui.present.text import clean

MAX_PORT = 65535


@dataclass(frozen=True)
class LaunchForm:
    """What stands in the fields, as text."""

    name: str = ""
    engine: str = EngineKind.VLLM.value
    model: str = ""
    node: str | None = None
    gpu_count: str = ""
    gpus: tuple[int, ...] = ()
    tensor_parallel: str = ""
    port: str = ""
    venv: str = ""
    args: str = ""
    over: str = ""  # how many nodes, or their names
    gpu_class: str | None = None
    settings: str = ""  # everything else, as `name=value` words
    verify: bool = True


@dataclass(frozen=True)
class FormReading:
    """The request, or None and the reason for each field that cannot be read."""

    request: LaunchRequest | None
    errors: dict[str, str] = field(default_factory=dict)


def read_form(form: LaunchForm) -> FormReading:
    """Turn the form into a request. Whether the request can be carried out is the planner's business.

    Returns:
        the request; or None with errors by field name. Fields not yet filled have the error "needed".
    """
    errors: dict[str, str] = {}
    count = _read_count(form.gpu_count, "gpu_count", 0, errors)
    parallel = _read_count(form.tensor_parallel, "tensor_parallel", 1, errors)
    port = _read_count(form.port, "port", 1, errors, MAX_PORT)
    args = _read_args(form.args, errors)
    nodes, node_count = _read_over(form, errors)
    settings = _read_settings(form.settings, errors)
    for name in ("name", "model"):
        if not getattr(form, name).strip():
            errors[name] = "needed"
    if form.gpus and count is not None and count != len(form.gpus):
        errors["gpu_count"] = f"{len(form.gpus)} GPUs are picked below: leave this empty"
    if errors:
        return FormReading(None, errors)
    return FormReading(
        LaunchRequest(
            name=form.name.strip(),
            engine=EngineKind(form.engine),
            model=form.model.strip(),
            node=form.node,
            nodes=nodes,
            node_count=node_count,
            gpu_class=form.gpu_class,
            gpus=tuple(sorted(form.gpus)),
            gpu_count=None if form.gpus else count,
            tensor_parallel=parallel or len(form.gpus) or count or 1,
            port=port,
            venv=form.venv.strip() or None,
            args=args,
            verify=form.verify,
            **settings,
        )
    )


def _read_count(
    text: str, name: str, least: int, errors: dict[str, str], most: int | None = None
) -> int | None:
    """The whole number typed; None for an empty field or one that is no such number."""
    text = text.strip()
    if not text:
        return None
    value = int(text) if text.isascii() and text.isdigit() else -1
    if value < least or (most is not None and value > most):
        upper = f" to {most}" if most is not None else " or more"
        errors[name] = f"a whole number, {least}{upper}"
        return None
    return value


def _read_args(text: str, errors: dict[str, str]) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        errors["args"] = f"cannot be split as a shell would: {error}".lower()
        return ()


def _read_over(form: LaunchForm, errors: dict[str, str]) -> tuple[tuple[str, ...], int | None]:
    """(names, count) of the nodes that it is to span; at most one of them is given."""
    text = form.over.strip()
    if not text:
        return (), None
    if form.node is not None:
        errors["over"] = f"{form.node} is chosen above: leave one of them out"
        return (), None
    if text.isdecimal():
        return (), _read_count(text, "over", 1, errors)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return names, None


def _read_settings(text: str, errors: dict[str, str]) -> dict[str, Any]:
    try:
        return read_settings(text)
    except ValueError as error:
        errors["settings"] = str(error)
        return {}


def class_options(snapshot: FleetSnapshot | None) -> list[tuple[str, str]]:
    """(text, class) of each class of GPUs and MIG slices of the nodes that answer, with how many of it are free."""
    free: dict[str, int] = {}
    for view in snapshot.nodes if snapshot is not None else ():
        if view.contact is not Contact.CONNECTED:
            continue
        for gpu in view.node.gpus:
            units = [(gpu.gpu_class, gpu.available)]
            units += [(item.gpu_class, item.available) for item in gpu.mig_instances]
            for name, is_free in units:
                if name:
                    free[name] = free.get(name, 0) + bool(is_free)
    return [(f"{name}  {count} free", name) for name, count in sorted(free.items())]


def node_options(snapshot: FleetSnapshot | None) -> list[tuple[str, str]]:
    """(text, node name) of the nodes that answer, with how many GPUs are free."""
    if snapshot is None:
        return []
    return [
        (f"{view.node.name}  {_free_text(view.node.gpus)}  {node_state(view).word}", view.node.name)
        for view in snapshot.nodes
        if view.contact is Contact.CONNECTED
    ]


def _free_text(gpus: Sequence[object]) -> str:
    if not gpus:
        return "no GPUs"
    free = sum(bool(getattr(gpu, "available", False)) for gpu in gpus)
    return f"{free}/{len(gpus)} GPUs free"


def gpu_options(snapshot: FleetSnapshot | None, node: str | None) -> list[tuple[str, int]]:
    """(text, index) of the free GPUs of a node; none without a node."""
    if snapshot is None or node is None:
        return []
    return [
        (f"{gpu.index}  {clean(gpu.gpu_class or '?')}  {memory_text(gpu)}", gpu.index)
        for view in snapshot.nodes
        if view.node.name == node
        for gpu in view.node.gpus
        if gpu.available
    ]
