"""The metrics of a process, for Prometheus."""

from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY: Final = CollectorRegistry(auto_describe=True)
notifications_total: Final = Counter(
    "butlers_notifications", "Notifications admitted, by the answer given.", ["origin", "outcome"], registry=REGISTRY
)
deliveries_total: Final = Counter(
    "butlers_deliveries",
    "Deliveries that this process brought into a state while it sent or swept, and why.",
    ["channel", "state", "reason"],
    registry=REGISTRY,
)
attempts_total: Final = Counter(
    "butlers_attempts", "Attempts to send one part, by their outcome.", ["channel", "outcome"], registry=REGISTRY
)
hop_seconds: Final = Histogram(
    "butlers_hop_seconds",
    "Seconds until another daemon's tool had answered.",
    ["target", "tool"],
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15),
    registry=REGISTRY,
)
oldest_open_delivery_seconds: Final = Gauge(
    "butlers_oldest_open_delivery_seconds", "Age of the oldest delivery in the queue or in hand.", registry=REGISTRY
)
deliveries_by_state: Final = Gauge(
    "butlers_deliveries_by_state", "Deliveries as their rows stand.", ["channel", "state"], registry=REGISTRY
)
rate_limited_total: Final = Counter(
    "butlers_rate_limited", "Messages at their marker that a limit delayed.", ["channel"], registry=REGISTRY
)
purged_total: Final = Counter(
    "butlers_purged_rows", "Rows wiped or removed because their time was over.", ["table", "how"], registry=REGISTRY
)
hint_floods_total: Final = Counter(
    "butlers_hint_floods", "Times that too many wake hints came, by whose login.", ["login"], registry=REGISTRY
)
approvals_waiting: Final = Gauge(
    "butlers_approvals_waiting", "Approval requests that wait for the owner.", ["origin"], registry=REGISTRY
)
oldest_approval_seconds: Final = Gauge(
    "butlers_oldest_approval_seconds", "Age of the oldest approval request that waits.", registry=REGISTRY
)
brakes_on: Final = Gauge("butlers_brakes_on", "Brakes that are on.", registry=REGISTRY)
build_info: Final = Gauge("butlers_build_info", "1, with the version of this process.", ["version"], registry=REGISTRY)
build_info.labels(version=version("butlers")).set(1)
channel_paused: Final = Gauge(
    "butlers_channel_paused", "1 while a channel has paused itself, else 0.", ["channel"], registry=REGISTRY
)


def metrics_text() -> bytes:
    """Return all metrics of this process in Prometheus' text format (version 0.0.4, UTF-8)."""
    return generate_latest(REGISTRY)


class Recent:
    """The text of a page of metrics, made once a second: anybody may ask for it, as often as they like."""

    def __init__(self) -> None:
        self._text = b""
        self._until = 0.0

    def text(self, now: float) -> bytes:
        """Return all metrics as they were at most a second before `now`, by the monotonic clock."""
        if now >= self._until:
            self._text, self._until = metrics_text(), now + 1
        return self._text


RECENT: Final = Recent()
