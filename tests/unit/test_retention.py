"""What operations.md says of how long things are kept is the list that is carried out."""

import re
from pathlib import Path

from shared import retention

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "docs" / "operations.md"
POLICIES = ROOT / "migrations" / "versions" / "0017_retention.py"
POLICY = re.compile(r"CREATE POLICY \w+ ON (\S+) [^;]*interval '(\d+) days'")


def test_the_document_shows_the_list() -> None:
    assert retention.as_table() in OPERATIONS.read_text(encoding="utf-8"), retention.as_table()


def test_every_entry_says_what_becomes_of_it_and_why() -> None:
    for kept in retention.LIST:
        assert kept.why.strip(), kept
        assert kept.columns.split(), kept
        assert kept.how != "wiped" or kept.after == retention.WORDS, kept
        assert kept.how != "kept" or kept.after is None, kept


def test_a_fence_outlives_the_words_it_stands_for() -> None:
    assert retention.REQUEST_WINDOWS < retention.UPDATES < retention.WORDS < retention.FENCES


def test_the_database_lets_a_row_go_after_the_days_of_the_list() -> None:
    removed = {(kept.table, str(kept.after.days)) for kept in retention.LIST if kept.how == "removed" and kept.after}
    policies = POLICY.findall(POLICIES.read_text(encoding="utf-8"))
    assert len(policies) == 5
    assert set(policies) <= removed
