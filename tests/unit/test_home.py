"""What lies in a daemon's folder of keys: replaced whole, for the same user, and the public halves are remembered."""

import os
from pathlib import Path

from shared import home_folder
from shared.auth import keystore
from shared.auth.keypairs import generate_key, public_key, sign, signer_of


def test_each_key_that_was_replaced_is_remembered_the_newest_first(tmp_path: Path) -> None:
    first = public_key(keystore.ensure(tmp_path, "messenger").private_pem)
    made = [generate_key() for _ in range(3)]
    for pem, _ in made:
        keystore.replace_key(tmp_path, "messenger", pem)
    assert keystore.read(tmp_path, "messenger").private_pem == made[-1][0]
    assert keystore.public_keys(tmp_path, "messenger") == [made[2][1], made[1][1], made[0][1], first]


def test_a_replacement_that_was_cut_off_leaves_no_key_out_and_none_twice(tmp_path: Path) -> None:
    keystore.ensure(tmp_path, "messenger")
    [first] = keystore.public_keys(tmp_path, "messenger")
    # Cut off when the old key was noted and the new one not yet in its place.
    (keystore.folder(tmp_path, "messenger") / keystore.FORMER).write_text(f"{first}\n")
    pem, public = generate_key()
    keystore.replace_key(tmp_path, "messenger", pem)
    assert keystore.public_keys(tmp_path, "messenger") == [public, first]


def test_what_is_replaced_belongs_to_whom_the_folder_belongs_and_nobody_else_reads_it(tmp_path: Path) -> None:
    keystore.ensure(tmp_path, "messenger")
    where = keystore.folder(tmp_path, "messenger")
    if os.geteuid() == 0:
        os.chown(where, 65534, 65534)
    keystore.replace_key(tmp_path, "messenger", generate_key()[0])
    keystore.replace_password(tmp_path, "messenger", "another")
    for name in ("key.pem", "password", keystore.FORMER):
        assert (where / name).stat().st_uid == where.stat().st_uid
        assert (where / name).stat().st_mode & 0o777 == 0o600
    assert {path.name for path in where.iterdir()} == {"key.pem", "password", "secret", keystore.FORMER}
    assert keystore.read(tmp_path, "messenger").password == "another"


def test_a_home_is_its_users_alone_to_write_and_a_wide_one_is_known(tmp_path: Path) -> None:
    house = tmp_path / "parent" / "house"
    before = os.umask(0)
    try:
        keystore.ensure(house, "messenger")
    finally:
        os.umask(before)
    assert house.stat().st_mode & 0o777 == 0o711
    assert (house / "keys").stat().st_mode & 0o022 == 0
    assert not home_folder.is_open(house)
    house.chmod(0o775)
    keystore.ensure(house, "messenger")
    assert home_folder.is_open(house), "a folder that is there stays as it is"


def test_a_home_without_that_daemons_keys_knows_none(tmp_path: Path) -> None:
    assert keystore.public_keys(tmp_path, "messenger") == []


def test_a_signature_names_its_maker_among_the_known() -> None:
    (one, one_public), (_, other_public) = generate_key(), generate_key()
    made = sign(one, b"words")
    assert signer_of(b"words", made, [other_public, one_public]) == one_public
    assert signer_of(b"words", made, [other_public]) is None
    assert signer_of(b"other words", made, [one_public]) is None
    assert signer_of(b"words", b"", [one_public]) is None
