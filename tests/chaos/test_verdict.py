"""The judge of the kills must see every evil that it is there for."""

from dataclasses import replace

import pytest

from tests.chaos.verdict import Acknowledged, Row, Sent, verdict

SENT = Sent("7001", "tea", "55")
ROW = Row("n1", "tea", third_party=True, status="ok", delivery="sent", address="7001", receipts=("55",), authority=True)
OK = Acknowledged("tea", "ok", "n1", "55")
QUEUED = Acknowledged("tea", "queued", "n1")
OWN = Row("n2", "milk", third_party=False, status="ok", delivery="sent", address="5", receipts=("56",))
OWN_SENT = Sent("5", "milk", "56")
UNCERTAIN = replace(ROW, status="uncertain", delivery="uncertain", receipts=(None,))
REFUSED = Acknowledged("tea", "error", "n1", error_class="internal_error")
FAILED = replace(ROW, status="error", delivery="failed", receipts=(None,))
CARD = Sent("5", "health wants to send\n\ntea", "54", asking=True)


def test_a_good_run_breaks_nothing() -> None:
    given = verdict([CARD, SENT, OWN_SENT], [QUEUED, OK, OK], [ROW, OWN])
    assert given.broken == ()
    assert given.figures["messages"] == 2
    assert given.figures["third_party"] == 1
    assert given.figures["answered_ok"] == 2


def test_what_nobody_can_know_is_counted_and_no_breach() -> None:
    lost = replace(UNCERTAIN, notification_id="n3", text="salt")
    given = verdict([SENT], [QUEUED, Acknowledged("tea", "uncertain", "n1")], [UNCERTAIN, lost])
    assert given.broken == ()
    assert (given.figures["uncertain"], given.figures["uncertain_that_arrived"]) == (2, 1)


def test_an_uncertain_one_may_turn_out_sent() -> None:
    assert verdict([SENT], [Acknowledged("tea", "uncertain", "n1")], [ROW]).broken == ()


def test_what_was_uncertain_is_told_the_owner_once_more_and_says_so() -> None:
    again = replace(OWN_SENT, provider_id="57", repeat=True)
    assert verdict([OWN_SENT, again], [], [replace(OWN, receipts=("57",))]).broken == ()


def test_silent_holders_and_false_alarms_are_counted() -> None:
    silent = replace(UNCERTAIN, reason="lease_lost", marked_at=5.0)
    later = replace(silent, notification_id="n3", text="salt", marked_at=9.0)
    figures = verdict([SENT], [], [silent, later], aimed_since=8.0).figures
    assert (figures["lost_leases"], figures["lost_leases_unsent"]) == (2, 1)
    assert (figures["lost_leases_unaimed"], figures["lost_leases_unaimed_unsent"]) == (1, 0)


def test_what_the_provider_refused_may_go_out_when_it_is_asked_again() -> None:
    refused = Acknowledged("tea", "error", "n1", error_class="provider_rejected")
    assert verdict([SENT], [refused, OK], [ROW]).broken == ()


def test_what_was_said_not_to_be_taken_need_not_be_there() -> None:
    told = Acknowledged("tea", "error", error_class="target_unavailable", retryable=True)
    assert verdict([], [told], []).broken == ()


def test_what_no_delivery_of_a_run_can_have_ended_as_is_a_breach_there_only() -> None:
    dead = replace(FAILED, delivery="dead", reason="timeout")
    assert verdict([], [], [dead]).broken == ()
    given = verdict([], [], [dead, ROW, OWN], never=frozenset({"dead"}))
    assert "ended dead (timeout): tea" in given.broken
    assert (given.figures["deliveries_dead"], given.figures["deliveries_sent"]) == (1, 2)


def test_what_lost_its_rule_after_three_noes_ends_as_refused_rightly() -> None:
    never = frozenset({"refused"})
    cooled, denied = (replace(FAILED, delivery="refused", reason=why) for why in ("cooled_down", "denied"))
    assert verdict([], [], [cooled], never=never).broken == ()
    assert verdict([], [], [denied], never=never).broken == ("ended refused (denied): tea",)


AGAIN = replace(SENT, provider_id="57")


def test_what_the_owner_had_sent_again_may_have_left_so_often_and_not_once_more() -> None:
    twice = replace(ROW, receipts=("57",), again=1)
    assert verdict([SENT, AGAIN], [Acknowledged("tea", "uncertain", "n1")], [twice]).broken == ()
    thrice = verdict([SENT, AGAIN, replace(AGAIN, provider_id="58")], [], [twice])
    assert thrice.broken == ("sent 3 times to a third party: tea",)


def test_what_was_sent_again_may_end_unsent_where_its_caller_is_told_that_it_may_have_arrived() -> None:
    told = Acknowledged("tea", "uncertain", "n1")
    ended = replace(FAILED, retryable=False, doubted=True, again=1, warned=True)
    assert verdict([SENT], [told], [ended]).broken == ()
    assert verdict([SENT], [told], [replace(ended, warned=False)]).broken != ()
    assert verdict([SENT], [told], [replace(ended, retryable=True)]).broken != ()
    assert verdict([SENT], [told], [replace(ended, again=0)]).broken != ()


def test_the_owners_word_is_a_receipt_where_the_owner_gave_it() -> None:
    told = Acknowledged("tea", "ok", "n1", "confirmed by the owner")
    row = replace(ROW, receipts=("confirmed by the owner",), vouched=1)
    assert verdict([], [told], [row]).broken == ()
    assert verdict([SENT], [told], [replace(ROW, vouched=1)]).broken == ()
    assert verdict([], [told], [replace(row, vouched=0)]).broken != ()
    both = replace(row, parts=2, receipts=("confirmed by the owner", "55"))
    second = replace(SENT, part=2)
    assert verdict([second], [], [both]).broken == ()
    assert verdict([second], [], [replace(both, receipts=2 * ("confirmed by the owner",))]).broken != ()


def test_what_may_have_arrived_is_tried_again_only_on_the_owners_word() -> None:
    unasked = replace(ROW, unasked=True)
    told = "tried again with a third party after what may have arrived: tea"
    given = verdict([SENT], [], [unasked])
    assert (given.broken, given.figures["twice"]) == ((told,), 1)
    assert verdict([SENT], [], [replace(unasked, third_party=False)]).broken == ()


def test_what_the_owner_left_at_that_stays_uncertain() -> None:
    left = replace(UNCERTAIN, delivery="abandoned", left=1)
    assert verdict([SENT], [Acknowledged("tea", "uncertain", "n1")], [left]).broken == ()
    assert verdict([], [], [replace(left, status="error")]).broken != ()
    assert verdict([], [], [replace(left, left=0)]).broken != ()


def test_what_was_sent_again_is_no_alarm_true_or_false() -> None:
    silent = replace(UNCERTAIN, reason="lease_lost", marked_at=5.0, again=1)
    figures = verdict([SENT], [], [silent], aimed_since=8.0).figures
    assert (figures["lost_leases"], figures["sent_again"]) == (0, 1)


LONG = replace(ROW, parts=2)
NAMED = replace(LONG, text="long tea", status="uncertain", delivery="uncertain")


def test_half_of_a_long_message_may_have_left_where_its_caller_is_told_not_to_say_it_again() -> None:
    assert verdict([SENT], [], [replace(FAILED, parts=2, retryable=False)]).broken == ()
    both = [SENT, replace(SENT, provider_id="56", part=2)]
    assert verdict(both, [], [replace(LONG, receipts=("55", "56"))]).broken == ()


def test_a_refusal_that_comes_late_ends_the_doubt() -> None:
    assert verdict([], [Acknowledged("tea", "uncertain", "n1")], [FAILED]).broken == ()


EVILS: dict[str, tuple[list[Sent], list[Acknowledged], list[Row]]] = {
    "sent 2 times to a third party": ([SENT, replace(SENT, provider_id="57")], [OK], [ROW]),
    "sent 2 times to the owner": ([OWN_SENT, OWN_SENT], [], [OWN]),
    "sent 3 times to the owner": ([OWN_SENT, *[replace(OWN_SENT, repeat=True)] * 2], [], [OWN]),
    "sent 2 times to a third party: tea": ([SENT, SENT], [], [UNCERTAIN]),
    "acknowledged as queued and lost": ([], [QUEUED], []),
    "acknowledged as pending_approval and lost": ([], [Acknowledged("tea", "pending_approval")], []),
    "acknowledged as error and lost": ([], [Acknowledged("tea", "error", retryable=False)], []),
    "acknowledged as ok and lost": ([SENT], [replace(OK, notification_id="other")], [ROW]),
    "was ok with receipt 55, now uncertain": ([SENT], [OK], [UNCERTAIN]),
    "was ok with receipt 58, now ok": ([SENT], [replace(OK, provider_id="58")], [ROW]),
    "was uncertain, now error": ([], [Acknowledged("tea", "uncertain", "n1")], [replace(FAILED, doubted=True)]),
    "was an error (forbidden), now ok": ([SENT], [replace(REFUSED, error_class="forbidden")], [ROW]),
    "was an error (internal_error), now ok": ([SENT], [replace(REFUSED, retryable=True)], [ROW]),
    "left open as queued with a delivery queued": ([], [], [replace(ROW, status="queued", delivery="queued")]),
    "left open as queued with a delivery sending": ([SENT], [], [replace(ROW, status="queued", delivery="sending")]),
    "left open as queued with a delivery None": ([], [QUEUED], [replace(ROW, status="queued", delivery=None)]),
    "left open as pending_approval": ([], [], [replace(ROW, status="pending_approval", delivery=None)]),
    "left open as ok": ([SENT], [], [replace(ROW, open_action=True)]),
    "ok without a delivery": ([SENT], [], [replace(ROW, delivery=None)]),
    "the answer says ok, the delivery is uncertain": ([SENT], [], [replace(ROW, delivery="uncertain")]),
    "the answer says error, the delivery is sent": ([SENT], [], [replace(ROW, status="error")]),
    "sent without a receipt": ([SENT], [], [replace(ROW, receipts=())]),
    "sent without a receipt: tea": ([SENT, OWN_SENT], [], [replace(ROW, receipts=("55", None)), OWN]),
    "ok with a receipt ('55',) nobody gave": ([], [], [ROW]),
    "ok with a receipt ('99',) nobody gave": ([SENT], [], [replace(ROW, receipts=("99",))]),
    "failed, yet it arrived": ([SENT], [], [FAILED]),
    "sent as part [2, 1] of 2": ([replace(SENT, part=2), SENT], [], [LONG]),
    "ok with 1 of 2 parts": ([SENT], [], [LONG]),
    "sent 2 times to a third party: long tea": ([*[replace(SENT, text="long tea", part=2)] * 2], [], [NAMED]),
    "failed and worth saying again, yet a part arrived": ([SENT], [], [replace(FAILED, parts=2)]),
    "sent to a third party without authority": ([SENT], [], [replace(ROW, authority=False)]),
    "sent to a third party without authority: tea": ([SENT], [], [replace(UNCERTAIN, authority=False)]),
    "sent to ['7009'] instead of 7001": ([replace(SENT, to="7009")], [], [ROW]),
    "sent to 7001 without a notification": ([SENT], [], []),
    "admitted 2 times": ([SENT], [], [ROW, replace(ROW, notification_id="n9")]),
}


@pytest.mark.parametrize("evil", EVILS)
def test_an_evil_is_called_by_its_name(evil: str) -> None:
    found = verdict(*EVILS[evil]).broken
    assert any(told.startswith(evil) for told in found), found
