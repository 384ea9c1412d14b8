"""Timings: the intervals by which daemons hold, wait, repeat and give up, in one value.

What the database compares is a timedelta and goes into its statements as a parameter; what a process waits is in
seconds. None of it is a setting: the figures hang together, and those that could do harm are checked here. Elsewhere
stand what the owner may set (`shared/config/settings.py`), what is kept and how long (`shared/retention.py`), how a
retry grows (`messenger/retry.py`), and the limits of one connection, beside the code that opens it. Pure.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

_LOOKS_IN_A_LEASE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """All of them, each with its unit and its reason."""

    lease: timedelta = timedelta(seconds=7)
    """Interval. What a silent holder had in hand is taken over after this; no socket is ever waited for so briefly."""
    renew: float = 2.0
    """Seconds between two renewals of the leases: three fit into one, so that a lost renewal costs nothing."""
    margin: float = 1.0
    """Seconds: with less than this left of the lease the committing byte is not written."""
    stopping_renew: float = 0.2
    """Seconds between two renewals while the process stops, so that it ends as soon as nothing is in hand."""
    drain: float = 20.0
    """Seconds that what is in hand has to end when the process stops."""
    turn_held: timedelta = timedelta(seconds=60)
    """Interval. A message being retried keeps its place so long from its first failure, then blocks nobody."""
    braked_again: timedelta = timedelta(seconds=20)
    """Interval. What a brake delays is asked again after this, and so long after a brake was lifted it is made due."""
    duplicate_again: timedelta = timedelta(seconds=5)
    """Interval. A duplicate looks again after this whether the first of the two has an answer."""
    owner_repeat: timedelta = timedelta(seconds=10)
    """Interval. A message to the owner of unknown outcome is repeated after this: a late receipt may still come."""
    longest_wait: timedelta = timedelta(hours=1)
    """Interval. Nothing waits longer for a retry or a limit; what says so was written by a wrong clock."""
    asked_together: timedelta = timedelta(seconds=10)
    """Interval. Two chats told to wait within this mean the whole channel: it is the bot that is counted."""
    bucket_kept: timedelta = timedelta(minutes=1)
    """Interval. The row of a limit's bucket is dropped so long after the bucket is full again."""

    failures_within: timedelta = timedelta(minutes=10)
    """Interval. So many failures within it pause their channel; waiting for one answer can take a minute."""
    probe: timedelta = timedelta(seconds=5)
    """Interval between two probes of a paused channel."""
    probe_login: timedelta = timedelta(minutes=5)
    """Interval. The longest between two probes of a refused login, which grow, as a login tried too often is locked."""

    burst_window: timedelta = timedelta(minutes=10)
    """Interval in which a butler's cards count against its burst until they are decided, and its digest grows."""
    card_elsewhere: timedelta = timedelta(seconds=60)
    """Interval. A card that Telegram did not take within it goes by the next channel too."""
    digest_gathers: timedelta = timedelta(seconds=5)
    """Interval from the first question of a digest to the digest, so that it holds what is asked at once."""
    digest_edit: timedelta = timedelta(seconds=3)
    """Interval between two edits of a digest: Telegram takes only so many, and what is new is listed within 5 s."""
    end_told: timedelta = timedelta(hours=1)
    """Interval. That something was not delivered is told so long after its end, and later no more."""
    call_told: timedelta = timedelta(days=30)
    """Interval. That a tool failed, or may have run, is told so long after it was called; its words end then, too."""
    end_counted: timedelta = timedelta(days=1)
    """Interval. The start page counts so long what was not delivered."""
    bounce_told: timedelta = timedelta(days=3)
    """Interval. A mail that came back longer ago than this is no news for the owner any more."""
    clock_slack: timedelta = timedelta(minutes=1)
    """Interval. Times that differ by less are the same: a row's time may lie ahead by as much as a clock is mended."""

    module_again: float = 30.0
    """Seconds until a module that cannot start, or whose loop keeps breaking, is tried again."""
    module_failures_within: float = 60.0
    """Seconds within which five failures of a loop degrade its module, and without one of which it is well again."""

    session_look: float = 0.5
    """Seconds between two looks at the sessions of up to five butlers; of more of them, longer in proportion."""
    session_heard: float = 5.0
    """Seconds between two such looks of a process that is told of each session: for leases that ran out."""
    session_renew: float = 1.0
    """Seconds between two renewals of a session's lease, at which it is also seen that the owner stops it."""
    session_lease: timedelta = timedelta(seconds=10)
    """Interval. A session whose process is silent so long is lost."""
    session_told_again: float = 60.0
    """Seconds until the owner is told again what could not be told."""

    poll: float = 5.0
    """Seconds that one getUpdates waits at the provider."""
    poll_lease: timedelta = timedelta(seconds=8)
    """Interval. The poller's lease, longer than one poll; another process polls after this."""
    poll_again: float = 1.0
    """Seconds until a poller looks again whether it is its turn, or after a poll that failed."""
    album: timedelta = timedelta(seconds=1)
    """Interval. The photos of one album are taken together; all of them have come this long after the first."""
    said_together: timedelta = timedelta(seconds=1)
    """Interval. What a chat brings so soon after somebody's words goes with them, such as what a comment forwards."""
    update_given_up: timedelta = timedelta(minutes=1)
    """Interval. An update that fails is tried again for so long."""
    command_counts: timedelta = timedelta(minutes=5)
    """Interval. A /resume that comes later than this after it was written is not obeyed: much may have happened."""
    unread_again: timedelta = timedelta(minutes=5)
    """Interval. So long the owner is not told again that nobody reads what is written to the bot."""
    commands_shown: float = 60.0
    """Seconds between two looks whether the menu of commands stands in the owner's chat of now."""
    update_numbers: timedelta = timedelta(days=6)
    """Interval. After a week without updates Telegram goes on with any number, also a lower one (Bot API, Update)."""
    mailbox_look: float = 110.0
    """Seconds that one look into the mailbox may take in all."""
    mailbox_lease: timedelta = timedelta(seconds=12)
    """Interval. The lease of the mailbox's reader; another process reads so long after a reader fell silent."""
    mailbox_renew: float = 3.0
    """Seconds between two renewals of that lease, since one look takes longer than it."""
    pairing: timedelta = timedelta(minutes=15)
    """Interval for which a pairing code is good: long enough to open Telegram, too short to be guessed."""

    messenger_wait: float = 10.0
    """Seconds the Messenger waits for the outcome of a live call: the innermost of three waits."""
    switchboard_wait: float = 12.0
    """Seconds the Switchboard waits for its target."""
    butler_wait: float = 14.0
    """Seconds a butler waits for the Switchboard; its client waits longer."""
    attachment_wait: float = 40.0
    """Seconds that fetching a file of a message may take; who waits for it waits as much longer as for a message."""
    hurried: float = 1.5
    """Seconds that a call in hand may take when its process stops."""
    outcome_again: float = 0.5
    """Seconds between two looks of a waiting call at the rows: no process is told what another one has settled."""
    status_wait: float = 50.0
    """Seconds. The longest `notification_status` waits, since MCP clients give up after a minute."""
    withdraw_wait: float = 5.0
    """Seconds that `withdraw` waits to be carried out."""
    withdraw_again: float = 0.2
    """Seconds between two looks of `withdraw`."""
    question_lasts: timedelta = timedelta(hours=24)
    """Interval. A question to the owner is open so long; after half of it an urgent one comes again."""
    question_heard: timedelta = timedelta(seconds=10)
    """Interval. A call counts so long as waiting after it said so; what is answered later becomes a notice."""
    question_look: float = 1.0
    """Seconds between two looks, one for all calls of a daemon that wait for the owner's answers."""
    question_progress: float = 15.0
    """Seconds between two signs of life to the client whose call waits, so that it does not give up."""
    cool_down: timedelta = timedelta(hours=24)
    """Interval. After three noes in a row a butler asks nothing more about that recipient for so long."""
    restored_mistrusted: timedelta = timedelta(days=1)
    """Interval. After a backup was put back older rules do not count, until so long after the brake was lifted."""
    live_call: timedelta = timedelta(seconds=3)
    """Interval. A notification so young belongs to its live call, and is not swept."""

    route_lease: timedelta = timedelta(seconds=10)
    """Interval. A received message that its holder did not route and hand over is taken by another after this."""
    thread_lasts: timedelta = timedelta(minutes=30)
    """Interval. What is written in a chat goes to the butler that had the last words there, if they are no older."""
    classifier: timedelta = timedelta(seconds=20)
    """Interval. The classifier's answer counts so long; the owner waits for the butler's answer meanwhile."""

    heartbeat: float = 5.0
    """Seconds between two heartbeats of an instance."""
    instance_counts: timedelta = timedelta(seconds=30)
    """Interval. Calls go to instances heard of within it: five heartbeats may be lost."""
    gone_forgotten: timedelta = timedelta(minutes=10)
    """Interval. An instance that left or is silent is forgotten after it, if another of its name was heard of since."""
    instance_forgotten: timedelta = timedelta(days=1)
    """Interval. An instance that left is forgotten after it in any case."""
    directory: float = 2.0
    """Seconds for which a process trusts what it read of the instances."""
    directory_unknown: float = 0.1
    """Seconds for which it trusts that there is none of a name."""
    keyring: float = 5.0
    """Seconds between two looks at the keyring: a retired key counts no longer than this."""
    quiet: float = 300.0
    """Seconds for which a process remembers whom it refused: a caller that goes on trying costs no unit of work."""

    unhurried: float = 5.0
    """Seconds between two looks at what nobody waits for: silent instances, the sandbox, channels that work."""
    longest_transaction: timedelta = timedelta(seconds=30)
    """Interval. What a butler's login holds for longer is ended: no statement of ours lasts as long."""
    metrics: float = 15.0
    """Seconds between two readings of the gauges, which is how often they are scraped."""
    witness: float = 1.0
    """Seconds between two looks of the witness at the number in the rows."""
    seal: float = 60.0
    """Seconds between two seals of the audit."""

    def __post_init__(self) -> None:
        """Refuse figures with which something would be sent twice, or be taken from a holder that works."""
        lease, poll_lease = self.lease.total_seconds(), self.poll_lease.total_seconds()
        for wrong, why in (
            (self.renew * _LOOKS_IN_A_LEASE > lease, "a lease is renewed three times before it runs out"),
            (
                self.session_renew * _LOOKS_IN_A_LEASE > self.session_lease.total_seconds(),
                "a session's lease is renewed three times before it runs out",
            ),
            (
                self.question_look * _LOOKS_IN_A_LEASE > self.question_heard.total_seconds(),
                "a call that waits says so three times before it no longer counts",
            ),
            (self.margin >= lease - self.renew, "what is left of a lease between two renewals is more than its margin"),
            (poll_lease <= self.poll, "the poller's lease outlives one poll"),
            (
                self.mailbox_renew * _LOOKS_IN_A_LEASE > self.mailbox_lease.total_seconds(),
                "the mailbox's lease is renewed three times before it runs out",
            ),
            (not self.messenger_wait < self.switchboard_wait < self.butler_wait, "waits nest"),
        ):
            if wrong:
                raise ValueError(f"These timings do not fit: {why}.")


STANDARD: Final = Timings()
"""What the product runs with."""
