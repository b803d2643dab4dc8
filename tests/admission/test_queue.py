"""Admission: what it promises, tested as it stands, without a clock and without an event loop."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw_core.admission.band import DEBTORS_MOST
from llmgw_core.admission.queue import FLOOR_EVERY, ModelQueue
from llmgw_core.admission.tallies import IDLE_MOST
from llmgw_core.admission.tickets import Limits, NotRunning, Refusal, Rejected, Ticket, TicketState

WIDE = Limits(slots=1, waiting=10_000)


def fill(queue: ModelQueue, band: str, tenant: str, count: int, cost: int = 100) -> list[Ticket]:
    return [queue.push(band, tenant, cost, now=0.0) for _ in range(count)]


def serve(queue: ModelQueue, count: int) -> list[Ticket]:
    """One after the other, each used as much as it was taken for."""
    served = []
    for _ in range(count):
        ticket = queue.pop(0.0)
        if ticket is None:
            break
        served.append(ticket)
        queue.release(ticket, None)
    return served


def test_of_eight_at_two_slots_and_room_for_two_four_are_refused_at_once() -> None:
    for pops_at_once in (True, False):
        queue = ModelQueue("m", Limits(slots=2, waiting=2))
        outcome: Counter[str] = Counter()
        for _ in range(8):
            try:
                queue.push("normal", "t", 10, now=0.0)
                outcome["in"] += 1
            except Rejected as error:
                outcome[error.reason.value] += 1
            if pops_at_once:
                queue.pop(0.0)
        while queue.pop(0.0):
            pass

        assert outcome == {"in": 4, "model-full": 4}
        assert (queue.running, queue.waiting) == (2, 2)


def test_a_slot_is_given_back_once() -> None:
    queue = ModelQueue("m", WIDE)
    ticket = queue.push("high", "t", 1, now=0.0)
    with pytest.raises(NotRunning):
        queue.release(ticket, 1)

    assert queue.pop(0.0) is ticket
    assert not queue.cancel(ticket)
    queue.release(ticket, 1)

    with pytest.raises(NotRunning):
        queue.release(ticket, 1)
    assert queue.running == 0


def test_bands_go_in_order_but_for_the_floor() -> None:
    queue = ModelQueue("m", WIDE, ("high", "low"))
    fill(queue, "low", "t", 50)
    fill(queue, "high", "t", 200)

    order = [ticket.band for ticket in serve(queue, 160)]

    assert order.count(1) == 160 // FLOOR_EVERY
    for start in range(len(order) - FLOOR_EVERY):
        assert 1 in order[start : start + FLOOR_EVERY]


def test_several_lower_bands_share_the_floor() -> None:
    queue = ModelQueue("m", WIDE, ("a", "b", "c"), floor_every=4)
    for band in "abc":
        fill(queue, band, "t", 100)

    counted = Counter(ticket.band for ticket in serve(queue, 80))

    assert counted == {0: 60, 1: 10, 2: 10}


def test_without_a_floor_order_is_strict() -> None:
    queue = ModelQueue("m", WIDE, ("high", "low"), floor_every=0)
    fill(queue, "low", "t", 5)
    fill(queue, "high", "t", 40)

    assert {ticket.band for ticket in serve(queue, 40)} == {0}


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


@pytest.mark.parametrize("costs", [(100, 100, 100), (10, 300, 4000), (20, 100, 9000)])
def test_tenants_share_tokens_by_weight_whatever_their_requests_cost(
    costs: tuple[int, ...],
) -> None:
    weights = {"a": 1, "b": 2, "c": 3}
    queue = ModelQueue("m", Limits(1, 1_000_000), ("x",), weights)
    cost_of = dict(zip(weights, costs, strict=True))
    for tenant, cost in cost_of.items():
        fill(queue, "x", tenant, 600_000 // cost, cost)

    used: Counter[str] = Counter()
    while sum(used.values()) < 300_000:
        (ticket,) = serve(queue, 1)
        used[ticket.tenant] += ticket.cost_tokens

    assert jain([used[tenant] / weight for tenant, weight in weights.items()]) >= 0.95


def test_what_was_underestimated_is_paid_back() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    fill(queue, "x", "liar", 4000, 10)
    fill(queue, "x", "honest", 4000, 200)

    used: Counter[str] = Counter()
    for _ in range(2000):
        ticket = queue.pop(0.0)
        assert ticket is not None
        real = 200
        used[ticket.tenant] += real
        queue.release(ticket, real)

    assert jain([float(value) for value in used.values()]) >= 0.95


def test_plain_turns_share_requests() -> None:
    queue = ModelQueue("m", WIDE, ("x",), {"b": 2}, by_tokens=False)
    fill(queue, "x", "a", 100, 9000)
    fill(queue, "x", "b", 100, 1)

    assert Counter(ticket.tenant for ticket in serve(queue, 60)) == {"a": 20, "b": 40}


@pytest.mark.parametrize("large", [None, 10_000, 131_072, 1_000_000])
def test_a_quiet_tenant_waits_little_beside_a_flooder(large: int | None) -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    if large is not None:  # one large estimate, even a cancelled one, must not make turns coarse
        queue.cancel(queue.push("x", "flooder", large, now=0.0))
    fill(queue, "x", "flooder", 5000)
    serve(queue, 100)
    quiet = queue.push("x", "quiet", 100, now=0.0)

    waited = next(number for number, ticket in enumerate(serve(queue, 5000)) if ticket is quiet)

    assert waited <= 0.05 * 5000


def test_going_idle_sheds_no_debt_and_saves_no_credit() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    (debtor,) = fill(queue, "x", "debtor", 1, 100)
    assert queue.pop(0.0) is debtor
    queue.release(debtor, 5000)  # far more than it was taken for
    fill(queue, "x", "debtor", 100, 100)
    fill(queue, "x", "other", 100, 100)

    first = [ticket.tenant for ticket in serve(queue, 40)]

    assert first.count("other") > first.count("debtor")


def test_rotation_goes_on_when_a_tenant_runs_out_in_the_middle() -> None:
    queue = ModelQueue("m", WIDE, ("x",), by_tokens=False)
    fill(queue, "x", "a", 3)
    fill(queue, "x", "b", 1)
    fill(queue, "x", "c", 3)

    assert [ticket.tenant for ticket in serve(queue, 9)] == ["a", "b", "c", "a", "c", "a", "c"]


def test_a_cancelled_waiter_is_passed_over() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    first, second = fill(queue, "x", "t", 2)

    assert queue.cancel(first)
    assert not queue.cancel(first)
    assert serve(queue, 2) == [second]
    assert first.state is TicketState.CANCELLED


def test_deadline_passes_once_and_nobody_past_it_runs() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    late = queue.push("x", "t", 1, now=0.0, wait_s=1.0)
    later = queue.push("x", "t", 1, now=0.0, wait_s=5.0)

    assert queue.next_deadline() == 1.0
    assert queue.pop(2.0) is later
    assert queue.expire(2.0) == [late]
    assert queue.expire(9.0) == []
    assert late.state is TicketState.EXPIRED


def test_after_a_huge_request_everybody_goes_on_in_turn() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    fill(queue, "x", "a", 3, 10**9)
    fill(queue, "x", "b", 3, 10**9)

    assert [ticket.tenant for ticket in serve(queue, 9)] == ["a", "b"] * 3


def test_deadlines_cancelled_all_at_once_are_swept() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    for ticket in [queue.push("x", "t", 1, now=0.0, wait_s=1e9) for _ in range(5_000)]:
        queue.cancel(ticket)

    assert len(queue._deadlines.heap) < 100


def test_cancelled_deadlines_do_not_pile_up() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    for _ in range(10_000):
        queue.cancel(queue.push("x", "t", 1, now=0.0, wait_s=1e9))

    assert len(queue._deadlines.heap) < 100


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(0, 100, waiting_per_band=2), Refusal.BAND_FULL),
        (Limits(0, 100, waiting_per_tenant=2), Refusal.TENANT_FULL),
        (Limits(0, 100, waiting_bytes=25), Refusal.BYTES_FULL),
        (Limits(0, 2), Refusal.MODEL_FULL),
    ],
)
def test_each_bound_refuses_with_its_reason_and_keeps_nothing(
    limits: Limits, reason: Refusal
) -> None:
    queue = ModelQueue("m", limits, ("x",))
    for _ in range(2):
        queue.push("x", "t", 1, now=0.0, size_bytes=10)

    with pytest.raises(Rejected, match=reason.value):
        queue.push("x", "t", 1, now=0.0, size_bytes=10)

    state = queue.state(0.0)
    assert (state.waiting, state.waiting_bytes, state.refused) == (2, 20, {reason: 1})


def test_paused_tenant_waits_while_others_go_and_comes_back() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    fill(queue, "x", "a", 2)
    fill(queue, "x", "b", 2)
    queue.pause_tenant("a")
    fill(queue, "x", "a", 1)

    assert [ticket.tenant for ticket in serve(queue, 9)] == ["b", "b"]
    assert queue.state(3.0).tenants[0].oldest_wait_s == 3.0
    queue.resume_tenant("a")
    assert [ticket.tenant for ticket in serve(queue, 9)] == ["a", "a", "a"]


def test_draining_refuses_new_ones_and_serves_those_that_wait() -> None:
    queue = ModelQueue("m", WIDE, ("x",))
    fill(queue, "x", "t", 2)
    queue.is_draining = True

    with pytest.raises(Rejected, match="draining"):
        fill(queue, "x", "t", 1)
    assert len(serve(queue, 9)) == 2


def test_refusals_are_counted_by_model_band_and_tenant() -> None:
    queue = ModelQueue("m", Limits(0, 10, waiting_per_tenant=1), ("high", "low"))
    fill(queue, "low", "a", 1)
    for band, tenant in (("low", "a"), ("low", "a"), ("high", "a"), ("attic", "b")):
        with pytest.raises(Rejected):
            fill(queue, band, tenant, 1)

    state = queue.state(0.0)

    assert state.refused == {Refusal.TENANT_FULL: 3, Refusal.UNKNOWN_BAND: 1}
    assert {(item.band, item.tenant): item.refused for item in state.tenants} == {
        ("(unknown)", "b"): {Refusal.UNKNOWN_BAND: 1},
        ("high", "a"): {Refusal.TENANT_FULL: 1},
        ("low", "a"): {Refusal.TENANT_FULL: 2},
    }


def test_tenants_that_are_gone_cost_no_memory_and_their_counts_stay() -> None:
    queue = ModelQueue("m", Limits(1, 10), ("x",))
    many = 3 * IDLE_MOST
    for number in range(many):
        (ticket,) = fill(queue, "x", f"t{number}", 1, 10)
        assert queue.pop(0.0) is ticket
        queue.release(ticket, 1000)  # leaves a debt

    tenants = queue.state(0.0).tenants

    assert len(tenants) <= IDLE_MOST + 1
    assert sum(item.used_tokens for item in tenants) == many * 1000
    assert sum(item.admitted for item in tenants) == many
    assert len(queue._bands[0]._debt) <= DEBTORS_MOST
    assert queue._bands[0]._credit == {}


def test_retry_after_is_what_waits_by_the_rate_of_late() -> None:
    queue = ModelQueue("m", Limits(100, 10_000), ("x",))
    assert queue.retry_after_s(0.0) == 1
    fill(queue, "x", "t", 500)
    assert queue.retry_after_s(0.0) == 60
    for number in range(10):  # five a second
        queue.pop(number / 5)

    assert queue.retry_after_s(2.0) == 60
    for ticket in fill(queue, "x", "other", 400):
        queue.cancel(ticket)
    for _ in range(80):
        queue.pop(2.0)
    assert queue.retry_after_s(2.0) == 7  # 410 wait, 64 of late within a second


def test_slots_may_shrink_under_those_who_run() -> None:
    queue = ModelQueue("m", Limits(3, 10), ("x",))
    running = [*fill(queue, "x", "t", 4)]
    while queue.pop(0.0):
        pass
    queue.slots = 1

    queue.release(running[0], None)
    assert queue.pop(0.0) is None
    queue.release(running[1], None)
    assert queue.pop(0.0) is None
    queue.release(running[2], None)
    assert queue.pop(0.0) is running[3]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["push", "push", "push", "pop", "cancel", "finish", "fail", "expire", "pause"]
        ),
        st.integers(0, 5),
        st.integers(0, 3000),
    ),
    max_size=120,
)


@given(STEPS, st.integers(1, 4), st.integers(0, 12))
@settings(max_examples=200, deadline=None)
def test_every_request_ends_once_and_no_slot_leaks(  # noqa: C901 - a branch for each step
    steps: list[tuple[str, int, int]], slots: int, waiting: int
) -> None:
    queue = ModelQueue("m", Limits(slots, waiting), ("high", "low"), {"t0": 3}, floor_every=4)
    made: list[Ticket] = []
    told_expired: list[Ticket] = []
    running: list[Ticket] = []
    for now, (step, number, cost) in zip(itertools.count(), steps, strict=False):
        tenant = f"t{number % 3}"
        if step == "push":
            try:
                wait_s = float(number) if number else None
                band = "high" if number % 2 else "low"
                made.append(queue.push(band, tenant, cost, now=float(now), wait_s=wait_s))
            except Rejected:
                assert queue.waiting >= waiting
        elif step == "cancel" and made:
            ticket = made[cost % len(made)]
            is_waiting = ticket.state is TicketState.WAITING
            assert queue.cancel(ticket) == is_waiting
            assert not is_waiting or ticket.state is TicketState.CANCELLED
        elif step in ("finish", "fail") and running:
            queue.release(running.pop(number % len(running)), cost, has_failed=step == "fail")
        elif step == "expire":
            told_expired += queue.expire(float(now))
        elif step == "pause":
            queue.pause_tenant(tenant) if cost % 2 else queue.resume_tenant(tenant)
        elif step == "pop":
            while (popped := queue.pop(float(now))) is not None:
                running.append(popped)
            is_held = queue.running == slots
            paused = {item.tenant for item in queue.state(0.0).tenants if item.is_paused}
            left = {t.tenant for t in made if t.state is TicketState.WAITING}
            assert is_held or left <= paused, "somebody waits while a slot is free"
        assert queue.running == len(running) <= slots
        assert queue.waiting == sum(t.state is TicketState.WAITING for t in made)
    for tenant in ("t0", "t1", "t2"):
        queue.resume_tenant(tenant)
    end = float(len(steps) + 100)
    told_expired += queue.expire(end)
    while running or queue.waiting:
        while (popped := queue.pop(end)) is not None:
            running.append(popped)
        queue.release(running.pop(), 1)

    ended = {TicketState.DONE, TicketState.FAILED, TicketState.CANCELLED, TicketState.EXPIRED}
    assert {ticket.state for ticket in made} <= ended
    assert len(set(told_expired)) == len(told_expired)
    assert set(told_expired) == {t for t in made if t.state is TicketState.EXPIRED}
    state = queue.state(end)
    assert (state.running, state.waiting, state.waiting_bytes) == (0, 0, 0)
