"""The line at the top: the whole cluster in one line; and the tabs below it. Pure."""

from collections.abc import Sequence

from llmgw_core.domain.inventory import Contact, FleetSnapshot
from llmgw_tui.present.nodes import engine_counts
from llmgw_tui.present.text import Line, Tone, join, line, span, width
from llmgw_tui.present.units import format_age

TAB_CELLS = 5  # of a tab, besides its name
OLD_SECONDS = 10.0  # from here on the age of the snapshot is worth a warning


def header(
    snapshot: FleetSnapshot | None,
    cluster: str,
    now: float,
    cells: int,
    *,
    read_only: bool = False,
) -> Line:
    """`llmgw  prod-a │ 3/4 nodes up │ 5/16 GPUs free │ ● 2 ready │ 1s ago`; with fewer words if it must be."""
    full = _header(snapshot, cluster, now, read_only=read_only, short=False)
    if width(full) <= cells:
        return full
    return _header(snapshot, cluster, now, read_only=read_only, short=True)


def _header(
    snapshot: FleetSnapshot | None, cluster: str, now: float, *, read_only: bool, short: bool
) -> Line:
    name = line(span(" llmgw", Tone.TITLE), span(f"  {cluster}", Tone.STRONG))
    mark = line(span("READ-ONLY", Tone.WARN)) if read_only else ()
    if snapshot is None:
        return join([name, mark, line(span("connecting…", Tone.DIM))], " │ ")
    return join(
        [
            name,
            mark,
            _node_counts(snapshot, short=short),
            _gpu_counts(snapshot),
            _engine_counts(snapshot, short=short),
            _age(snapshot, now, short=short),
        ],
        "│" if short else " │ ",
    )


def _node_counts(snapshot: FleetSnapshot, *, short: bool) -> Line:
    total = len(snapshot.nodes)
    up = sum(view.contact is Contact.CONNECTED for view in snapshot.nodes)
    waiting = sum(view.contact is Contact.CONNECTING for view in snapshot.nodes)
    away = total - up - waiting
    return line(
        f"{up}/{total} nodes up",
        span(f" ◌ {waiting}{'' if short else ' connecting'}", Tone.DIM) if waiting else None,
        span(f" ▲ {away}{'' if short else ' away'}", Tone.WARN) if away else None,
    )


def _gpu_counts(snapshot: FleetSnapshot) -> Line:
    """GPUs of nodes that answer: what is said of the others may be old."""
    views = [view for view in snapshot.nodes if view.contact is Contact.CONNECTED]
    total = sum(len(view.node.gpus) for view in views)
    if not views:
        return ()
    if not total:
        return line(span("no GPUs", Tone.DIM))
    free = sum(gpu.available for view in views for gpu in view.node.gpus)
    return line(f"{free}/{total} GPUs free")


def _engine_counts(snapshot: FleetSnapshot, *, short: bool) -> Line:
    views = [view for view in snapshot.nodes if view.contact is Contact.CONNECTED]
    engines = [engine for view in views for engine in view.node.engines]
    if not views:
        return ()
    return engine_counts(engines, short=short) or line(span("no engines", Tone.DIM))


def _age(snapshot: FleetSnapshot, now: float, *, short: bool) -> Line:
    """Age of the newest reading of any node."""
    times = [view.updated_at for view in snapshot.nodes if view.updated_at is not None]
    if not times:
        return ()
    age = now - max(times)
    return line(
        span(
            f"{format_age(age)}{'' if short else ' ago'}",
            Tone.WARN if age > OLD_SECONDS else Tone.DIM,
        )
    )


def tabs(names: Sequence[str], current: int, cells: int) -> tuple[Line, ...]:
    """` 1 Cluster ` for each name, the current one bracketed: told apart without colour too. Without blanks if it must be."""
    whole = sum(len(name) + TAB_CELLS for name in names)
    blank = " " if whole < cells else ""
    made = []
    for place, name in enumerate(names):
        chosen = place == current
        text = f"[{place + 1} {name}]" if chosen else f"{blank}{place + 1} {name}{blank}"
        made.append(line(span(text, Tone.ACCENT if chosen else Tone.DIM), span(" ")))
    return tuple(made)
