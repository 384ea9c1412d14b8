"""docs/butler-toml.md says what the code says."""

from tests.reference import FILE, text


def test_the_reference_is_what_the_code_says() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "python -m tests.reference writes it anew"
