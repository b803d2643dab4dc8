"""The queue view: it asks for pictures of the gateways while it is seen, and asks before it steers one."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.queue import GatewaysPicture
from llmgw_tui.messages import ActRequested, GatewaysWanted, SteerRequested
from llmgw_tui.present import queue, queue_detail
from llmgw_tui.present.steering import Steer, ask_about, refusal
from llmgw_tui.present.table import Key, Row
from llmgw_tui.present.text import Line
from llmgw_tui.screens.confirm import ConfirmScreen
from llmgw_tui.widgets.master_detail import MasterDetail, ViewSpec


class QueueView(MasterDetail):
    """Gateways, models, tenants and engines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "P",
            "steer('pause')",
            "Pause",
            key_display="P",
            tooltip="Keep a model's or a tenant's requests waiting; asks first",
        ),
        Binding(
            "U",
            "steer('resume')",
            "Resume",
            key_display="U",
            tooltip="End a pause or a drain; asks first",
        ),
        Binding(
            "D",
            "steer('drain')",
            "Drain",
            key_display="D",
            tooltip="Let a model or an engine take no new requests; asks first",
        ),
    ]

    def __init__(self, name: str, *, read_only: bool) -> None:
        self._picture: GatewaysPicture | None = None
        self._read_only = read_only
        super().__init__(
            ViewSpec(name, "Queue", queue.COLUMNS, self._rows, self._detail, self._empty)
        )

    def take(self, picture: GatewaysPicture) -> None:
        """Draw this picture of the gateways."""
        self._picture = picture
        if self.display:
            self.show(self._snapshot, self._now)

    def on_show(self, event: events.Show) -> None:
        """Follow the gateways from now on."""
        del event
        self.post_message(GatewaysWanted(True))

    def on_hide(self, event: events.Hide) -> None:
        """Follow them no longer: each look costs their nodes something."""
        del event
        self.post_message(GatewaysWanted(False))

    def _rows(self, snapshot: FleetSnapshot, now: float) -> Sequence[Row]:
        del snapshot, now
        return () if self._picture is None else queue.rows(self._picture)

    def _detail(self, snapshot: FleetSnapshot, key: Key, now: float) -> Sequence[Line]:
        del snapshot
        return () if self._picture is None else queue_detail.detail(self._picture, key, now)

    def _empty(self, snapshot: FleetSnapshot | None) -> Sequence[Line]:
        return queue.empty(self._picture, snapshot)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Grey what a read-only console does not do; letters typed into the filter are the filter's."""
        if action == "steer":
            return None if self._read_only else not self.filter_input.has_focus
        return super().check_action(action, parameters)

    def action_steer(self, verb: str) -> None:
        """Ask about pausing, resuming or draining what is selected now, whatever moves meanwhile."""
        steer = Steer(verb)
        item = queue.find_item(self._picture, self.table.cursor_key)
        why_not = refusal(steer, item)
        if item is None or why_not is not None:
            self.notify(why_not or "", severity="warning", markup=False)
            return
        wanted = SteerRequested(verb, item.view.node, item.view.socket, item.kind, _target(item))

        def answer(request: ActRequested | None) -> None:
            if request is not None:
                self.post_message(wanted)

        self.app.push_screen(ConfirmScreen(ask_about(steer, item)), answer)


def _target(item: queue.QueueItem) -> str:
    """What the gateway is told: engines by their URL, of which each has its own."""
    return item.engine.url if item.engine is not None else item.name
