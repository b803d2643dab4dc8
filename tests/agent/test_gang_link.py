"""The ranks of a gang by their messages alone: what is believed, and what is made of it."""

import hashlib
import hmac
import json
from dataclasses import replace

from llmgw_core.agent.gang_link import (
    FAILED,
    LOADING,
    READY,
    SILENT_AFTER_S,
    STOPPED,
    GangView,
    Ledger,
    is_gang,
)
from llmgw_core.domain.launch import Gang, GangMember, RankPlan
from tests.support.agents import make_rank

KEY = bytes(range(32))


def rank_of(number: int, ranks: int = 3) -> RankPlan:
    members = tuple(GangMember(f"n{i}", f"10.0.0.{i}") for i in range(ranks))
    return make_rank(
        engine_id=f"chat-00000001-r{number}", rank=number, ranks=ranks, gang=Gang(members, 25008)
    )


def gang(ranks: int = 3) -> list[Ledger]:
    return [Ledger(rank_of(number, ranks), KEY, 0.0) for number in range(ranks)]


def beat(ledgers: list[Ledger], now: float, deaf: frozenset[int] = frozenset()) -> None:
    """Each tells those it knows; `deaf` ranks neither speak nor hear."""
    for ledger in ledgers:
        for to in ledger.peers:
            if not {ledger.rank, to} & deaf:
                ledgers[to].take(ledger.compose(to, now), now)


def settle(ledgers: list[Ledger], now: float) -> list[GangView]:
    for _ in range(3):
        beat(ledgers, now)
    return [ledger.judge(now) for ledger in ledgers]


def test_all_are_ready_only_when_each_is() -> None:
    ledgers = gang()
    ledgers[0].state = ledgers[1].state = READY
    assert [view.all_ready for view in settle(ledgers, 1.0)] == [False] * 3

    ledgers[2].state = READY
    assert [view.all_ready for view in settle(ledgers, 2.0)] == [True] * 3

    ledgers[2].state = LOADING
    assert [view.all_ready for view in settle(ledgers, 3.0)] == [False] * 3


def test_an_end_reaches_every_rank_with_its_reason() -> None:
    ledgers = gang()
    settle(ledgers, 1.0)
    ledgers[2].state, ledgers[2].why = FAILED, "killed by signal 9"
    views = settle(ledgers, 2.0)

    assert views[0].ended == (2, FAILED, "killed by signal 9")
    assert views[1].ended == (0, FAILED, "rank 2: killed by signal 9")


def test_a_failure_outweighs_a_stop() -> None:
    ledgers = gang()
    settle(ledgers, 1.0)
    ledgers[1].state, ledgers[2].state = STOPPED, FAILED
    ended = settle(ledgers, 2.0)[0].ended

    assert ended is not None
    assert ended[:2] == (2, FAILED)


def test_silence_is_told_as_silence_and_ends_nothing() -> None:
    ledgers = gang()
    for ledger in ledgers:
        ledger.state = READY
    settle(ledgers, 1.0)
    later = 1.0 + SILENT_AFTER_S + 1
    beat(ledgers, later, deaf=frozenset({2}))
    beat(ledgers, later, deaf=frozenset({2}))
    head, other, cut_off = (ledger.judge(later) for ledger in ledgers)

    assert head.silent == (2,)
    assert head.ended is None
    assert not head.all_ready
    assert not other.all_ready
    assert cut_off.silent == (0,)

    assert all(view.all_ready for view in settle(ledgers, later + 1))


def test_never_heard_is_missing() -> None:
    ledgers = gang()
    beat(ledgers, 1.0, deaf=frozenset({1}))
    beat(ledgers, 1.0, deaf=frozenset({1}))

    assert ledgers[0].judge(1.0).missing == (1,)


def test_forged_torn_and_strange_messages_change_nothing() -> None:
    ledgers = gang(2)
    settle(ledgers, 1.0)
    head = ledgers[0]
    good = ledgers[1].compose(0, 2.0)
    body = json.loads(good[32:])

    def sign(value: object) -> bytes:
        data = json.dumps(value).encode("ascii")
        return hmac.new(KEY, data, hashlib.sha256).digest() + data

    strange = [
        b"",
        b"x" * 31,
        good[:-1],
        bytes([good[0] ^ 1]) + good[1:],
        hmac.new(bytes(32), good[32:], hashlib.sha256).digest() + good[32:],
        sign([]),
        sign({}),
        sign({**body, "state": "exploded"}),
        sign({**body, "state": FAILED, "from": 7}),
        sign({**body, "state": FAILED, "to": 1}),
        sign({**body, "state": FAILED, "launch": "chat-00000002"}),
        sign({**body, "state": FAILED, "nonce": 5}),
        sign({**body, "state": FAILED, "gang_ready": "yes"}),
        hmac.new(KEY, b"\xff", hashlib.sha256).digest() + b"\xff",
    ]
    for message in strange:
        assert not head.take(message, 2.0)
    assert head.judge(2.0).ended is None


def test_a_recorded_end_of_another_life_is_not_believed() -> None:
    before = gang(2)
    settle(before, 1.0)
    before[1].state = FAILED
    recorded = before[1].compose(0, 2.0)

    after = gang(2)  # both daemons anew, the same launch and key
    settle(after, 3.0)
    after[0].take(recorded, 4.0)

    assert after[0].judge(4.0).ended is None
    assert settle(after, 5.0)[0].missing == ()


def test_a_daemon_anew_is_heard_again() -> None:
    ledgers = gang(2)
    for ledger in ledgers:
        ledger.state = READY
    settle(ledgers, 1.0)
    ledgers[1] = Ledger(rank_of(1, 2), KEY, 2.0)
    ledgers[1].state = READY

    assert all(view.all_ready for view in settle(ledgers, 2.0))


def test_what_is_no_gang() -> None:
    rank = rank_of(1)
    assert is_gang(rank, KEY.hex())
    assert not is_gang(rank, KEY.hex()[2:])
    assert not is_gang(rank, "g" * 64)
    assert not is_gang(replace(rank, rank=3), KEY.hex())
    assert not is_gang(replace(rank, ranks=2), KEY.hex())
    assert not is_gang(replace(rank, gang=None), KEY.hex())
