"""What a backup holds of a home beside the database."""

import io
import tarfile
from pathlib import Path

from butlers.setup import backup

ABOUT = b'{"made_at": "now", "program": "1", "postgres": 17, "form": 1}'


def test_what_a_session_has_while_it_runs_is_in_no_backup(tmp_path: Path) -> None:
    for name in ("keys/greeter/key", "sessions/one/token", "sessions/one/notes/draft"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    names = [str(path.relative_to(tmp_path)) for path in backup.kept(tmp_path)]
    assert names == ["keys", "keys/greeter", "keys/greeter/key"]


def test_a_backup_by_an_earlier_version_is_read_without_its_sessions(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in (("about.json", ABOUT), ("home/sessions/one", b"x"), ("home/secret", b"x")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    packed.seek(0)
    with tarfile.open(fileobj=packed) as archive:
        assert backup.read(archive, tmp_path, io.BytesIO()).postgres == 17
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
