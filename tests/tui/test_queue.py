"""The queue view: what its rows say, and the console that follows and steers gateways by it."""

from dataclasses import replace

import pytest

from llmgw_core.domain.queue import GatewaysPicture, GatewayView
from llmgw_core.errors import GatewayError
from llmgw_tui.app import LlmgwApp
from llmgw_tui.present import queue
from llmgw_tui.present.queue_detail import detail
from llmgw_tui.present.steering import Steer, ask_about, refusal
from llmgw_tui.present.text import plain
from llmgw_tui.screens.confirm import ConfirmScreen
from llmgw_tui.widgets.table import Table
from tests.support.console import running, screen_text, shows, until
from tests.support.fleets import NOW, FakeFleet, make_cluster
from tests.support.queues import SOCKET, FakeGateways, make_gateways, make_lost_gateway

TITLES = [column.title for column in queue.COLUMNS]
PLACE = ("gpu1", SOCKET)
LLAMA = (*PLACE, "model", "llama-70b")
BATCH = (*PLACE, "tenant", "llama-70b", "low", "batch")
CHAT_2 = (*PLACE, "engine", "http://127.0.0.1:8001")


def cells(picture: GatewaysPicture, key: tuple[str, ...]) -> dict[str, str]:
    row = next(row for row in queue.rows(picture) if row.key == key)
    return dict(zip(TITLES, (plain(cell).strip() for cell in row.cells), strict=True))


def item_of(key: tuple[str, ...]) -> queue.QueueItem:
    found = queue.find_item(make_gateways(), key)
    assert found is not None
    return found


def test_rows_are_a_tree_of_gateway_models_tenants_and_engines() -> None:
    names = [plain(row.cells[0]) for row in queue.rows(make_gateways())]

    assert names == [
        "gpu1 127.0.0.1:8080",
        "  llama-70b",
        "    search",
        "    batch",
        "    ▸ chat-1 on gpu1",
        "    ▸ chat-2 on gpu2",
        "  qwen-vl",
        "    ▸ vl on gpu3",
    ]


def test_model_sums_up_its_tenants() -> None:
    found = cells(make_gateways(), LLAMA)

    assert (found["RUN"], found["WAIT"], found["OLDEST"]) == ("28/32", "40", "41s")
    assert (found["REQ/S"], found["TOK/S"]) == ("6.8", "2390")
    assert found["REFUSED"] == "12 tenant-full, 3 expired"


def test_tenant_shows_its_share_against_its_weight_and_is_marked_when_it_gets_too_little() -> None:
    search = cells(make_gateways(), (*PLACE, "tenant", "llama-70b", "high", "search"))
    batch = cells(make_gateways(), BATCH)

    assert (search["BAND"], search["SHARE"]) == ("high", "88/67 %")
    assert (batch["BAND"], batch["SHARE"]) == ("low", "▼ 12/33 %")


def test_engine_shows_what_it_says_itself_and_unknown_is_not_zero() -> None:
    told = cells(make_gateways(), CHAT_2)
    silent = cells(make_gateways(), (*PLACE, "engine", "http://127.0.0.1:8002"))

    assert (told["RUN"], told["OWN"], told["KV"]) == ("14/16", "14+2", "97 %")
    assert (silent["OWN"], silent["KV"], silent["REFUSED"]) == ("—", "—", "ConnectionRefusedError")


def test_lost_gateway_says_so_and_how_old_what_is_shown_is() -> None:
    picture = make_gateways(make_lost_gateway())

    assert cells(picture, (*PLACE, "gateway", ""))["STATE"] == "◌ no answer"
    text = "\n".join(plain(line) for line in detail(picture, LLAMA, NOW))
    assert "Connection refused; last seen 1m ago" in text
    assert "→ start it" in text


def test_gateway_that_never_answered_has_unknown_counts() -> None:
    found = cells(make_gateways(GatewayView("", SOCKET)), ("", SOCKET, "gateway", ""))

    assert (found["NAME"], found["RUN"], found["WAIT"]) == ("this machine gateway-8080", "—", "—")


def test_detail_of_a_model_names_shares_and_engines() -> None:
    text = "\n".join(plain(line) for line in detail(make_gateways(), LLAMA, NOW))

    assert "12 % of  33 %  ▼ less than its weight" in text
    assert "chat-2 on gpu2" in text
    assert "1.2 MiB" in text


def test_empty_tells_searching_from_none() -> None:
    searching = [plain(line) for line in queue.empty(None, None)]
    none = [
        plain(line)
        for line in queue.empty(replace(make_gateways(away=("gpu10",)), gateways=()), None)
    ]

    assert searching == ["Asking the nodes for gateways…"]
    assert none[0] == "No gateway"
    assert "▲ gpu10: no answer, so not counted." in none


@pytest.mark.parametrize(
    ("steer", "key", "said"),
    [
        (Steer.PAUSE, CHAT_2, "not paused but drained"),
        (Steer.DRAIN, BATCH, "not drained but paused"),
        (Steer.RESUME, LLAMA, "neither paused nor draining"),
        (Steer.PAUSE, (*PLACE, "gateway", ""), "Choose a model"),
    ],
)
def test_what_cannot_be_steered_is_refused_with_what_can(
    steer: Steer, key: tuple[str, ...], said: str
) -> None:
    assert said in (refusal(steer, item_of(key)) or "")


def test_pausing_a_busy_model_asks_for_its_name_and_a_tenant_for_enter_alone() -> None:
    assert ask_about(Steer.PAUSE, item_of(LLAMA)).typed == "llama-70b"
    assert ask_about(Steer.PAUSE, item_of(BATCH)).typed is None


def queue_table(app: LlmgwApp) -> Table:
    return app.main.view_of("queue").table


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_queue_is_seen_at_every_size(size: tuple[int, int]) -> None:
    gateways = FakeGateways(make_gateways())
    async with running(FakeFleet(make_cluster()), size, gateways=gateways) as (app, pilot):
        await pilot.press("8")
        await until(pilot, shows(app, "batch"))
        shown = screen_text(app)

    assert all(word in shown for word in ("[8 Queue]", "llama-70b", "28/32", "40", "▼ 12/33"))


@pytest.mark.slow
async def test_gateways_are_followed_only_while_their_view_is_seen() -> None:
    gateways = FakeGateways(make_gateways())
    async with running(FakeFleet(make_cluster()), gateways=gateways) as (app, pilot):
        assert gateways.followers == 0
        await pilot.press("8")
        await until(pilot, lambda: gateways.followers == 1)
        await pilot.press("r")
        await until(pilot, lambda: gateways.searches == 1)
        await pilot.press("1")
        await until(pilot, lambda: gateways.followers == 0)
        await pilot.press("8")
        await until(pilot, lambda: gateways.followers == 1)
        assert "batch" in screen_text(app)  # what was last seen, until there is newer


@pytest.mark.slow
async def test_pause_of_a_tenant_is_confirmed_and_sent_to_its_gateway() -> None:
    gateways = FakeGateways(make_gateways())
    async with running(FakeFleet(make_cluster()), gateways=gateways) as (app, pilot):
        await pilot.press("8")
        await until(pilot, shows(app, "batch"))
        queue_table(app).select(BATCH)
        await pilot.press("P")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert "its requests for every model wait" in screen_text(app)
        assert gateways.steered == []
        await pilot.press("enter")
        await until(pilot, lambda: gateways.steered == [(*PLACE, "pause", "tenant", "batch")])
        await until(pilot, shows(app, "tenant batch is paused"))


@pytest.mark.slow
async def test_drain_of_an_engine_goes_by_its_url_and_a_refusal_stays_in_sight() -> None:
    gateways = FakeGateways(make_gateways())
    gateways.error = GatewayError("the gateway refused", "no such engine")
    async with running(FakeFleet(make_cluster()), gateways=gateways) as (app, pilot):
        await pilot.press("8")
        await until(pilot, shows(app, "chat-2"))
        queue_table(app).select(CHAT_2)
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("enter")
        await until(pilot, shows(app, "no such engine"))

    assert gateways.steered == [(*PLACE, "drain", "engine", "http://127.0.0.1:8001")]


@pytest.mark.slow
async def test_read_only_console_steers_nothing() -> None:
    gateways = FakeGateways(make_gateways())
    fleet = FakeFleet(make_cluster())
    async with running(fleet, read_only=True, gateways=gateways) as (app, pilot):
        await pilot.press("8")
        await until(pilot, shows(app, "batch"))
        queue_table(app).select(BATCH)
        await pilot.press("P")
        await pilot.pause()
        assert not isinstance(app.screen, ConfirmScreen)


@pytest.mark.slow
async def test_lost_gateway_is_greyed_with_the_reason_in_the_detail() -> None:
    gateways = FakeGateways(make_gateways())
    async with running(FakeFleet(make_cluster()), gateways=gateways) as (app, pilot):
        await pilot.press("8")
        await until(pilot, shows(app, "● serving"))
        gateways.push(make_gateways(make_lost_gateway()))
        await until(pilot, shows(app, "Connection refused"))
        assert "◌ no answer" in screen_text(app)
