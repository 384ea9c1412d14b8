"""What a run found, as numbers, as the table that is printed, and as the lines docs/benchmarks.md holds. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

ONE_PROCESS = "one process"
APART = "a process per daemon"
BEGIN, END = "<!-- figures: written by `make bench` -->", "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds: what nine of ten calls exceed, half of them, and one in a hundred."""

    p10: float
    median: float
    p99: float

    @classmethod
    def of(cls, found: Sequence[float]) -> "Spread":
        """The nearest ranks, to a hundredth of a millisecond."""
        ordered = sorted(found)
        return cls(*(round(ordered[min(len(ordered) - 1, int(len(ordered) * q))], 2) for q in (0.1, 0.5, 0.99)))


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run the fleet: seconds to start, spreads by kind of call, and what it costs."""

    cold_seconds: float
    warm_seconds: float
    calls: Mapping[str, Spread]
    transactions_per_notify: float
    transactions_per_second_at_rest: float
    resident_mb: Mapping[str, float]
    # Of a run that measured it.
    due_to_first_call_seconds: float | None = None

    @property
    def ratios(self) -> Mapping[str, float]:
        """How many times the median of `notify` is that of the other two."""
        told = self.calls["notify"].median
        return {f"notify / {name}": round(told / self.calls[name].median, 2) for name in ("no-op", "bare sendMessage")}


@dataclass(frozen=True, slots=True)
class Run:
    """One whole run."""

    date: str
    commit: str
    machine: Mapping[str, str]
    rounds: int
    modes: Mapping[str, Mode]

    def as_json(self) -> dict[str, object]:
        """The object that is written down."""
        plain = asdict(self)
        for name, mode in self.modes.items():
            plain["modes"][name]["ratios"] = dict(mode.ratios)
        return plain


def read(raw: Mapping[str, object]) -> Run:
    """The inverse of `as_json`."""
    modes = raw["modes"]
    assert isinstance(modes, dict)
    known = {
        name: Mode(
            **{key: value for key, value in mode.items() if key not in {"calls", "ratios"}},
            calls={kind: Spread(**spread) for kind, spread in mode["calls"].items()},
        )
        for name, mode in modes.items()
    }
    return Run(**{**raw, "modes": known})  # type: ignore[arg-type]  # written by as_json


def table(run: Run) -> str:
    """The figures as Markdown, readable in a terminal too."""
    machine = ", ".join(f"{key} {value}" for key, value in run.machine.items())
    changed = " with changes" if run.commit.endswith("+") else ""
    blocks = [f"Taken on {run.date} at commit {run.commit[:12]}{changed}; {machine}; {run.rounds} rounds."]
    for name, mode in run.modes.items():
        blocks += [f"### In {name}", _calls(mode), _costs(mode)]
    return "\n\n".join(blocks)


def _calls(mode: Mode) -> str:
    head = f"| {'milliseconds per call':<24} | {'p10':>8} | {'median':>8} | {'p99':>8} |"
    rule = f"| {'-' * 24} | {'-' * 7}: | {'-' * 7}: | {'-' * 7}: |"
    rows = [f"| {k:<24} | {s.p10:>8.2f} | {s.median:>8.2f} | {s.p99:>8.2f} |" for k, s in mode.calls.items()]
    return "\n".join([head, rule, *rows])


def _costs(mode: Mode) -> str:
    known = {f"{name}, medians": f"{ratio:.2f}" for name, ratio in mode.ratios.items()}
    known |= {
        "transactions per notify": f"{mode.transactions_per_notify:.1f}",
        "transactions per second at rest": f"{mode.transactions_per_second_at_rest:.1f}",
        "start, cold, in seconds": f"{mode.cold_seconds:.1f}",
        "start, warm, in seconds": f"{mode.warm_seconds:.1f}",
    }
    if mode.due_to_first_call_seconds is not None:
        known["from due to the first call of a script, in s"] = f"{mode.due_to_first_call_seconds:.2f}"
    known |= {f"resident memory, {name}, in MB": f"{size:.0f}" for name, size in mode.resident_mb.items()}
    head, rule = f"| {'the rest':<40} | {'':>8} |", f"| {'-' * 40} | {'-' * 7}: |"
    return "\n".join([head, rule, *(f"| {name:<40} | {value:>8} |" for name, value in known.items())])


def with_figures(document: str, run: Run) -> str:
    """The document with the lines between its two marks replaced."""
    before, _, rest = document.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"the document lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{table(run)}\n\n{END}{after}"
