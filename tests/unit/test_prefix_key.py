"""Chained keys of prefixes."""

import hashlib

from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import KEY_BYTES, chain, extend, root_key
from support.builders import ids, random_ids


def test_a_chain_has_a_key_for_each_grid_line_that_the_ids_reach() -> None:
    grid = Grid(8)

    assert len(chain(Namespace(), random_ids(7), grid)) == 1
    assert len(chain(Namespace(), random_ids(8), grid)) == 2
    assert len(chain(Namespace(), random_ids(31), grid)) == 4


def test_a_key_is_a_known_cut_of_sha256() -> None:
    root = hashlib.sha256(b"anchorline prefix 1" + Namespace().canonical()).digest()[:16]
    words = b"\x01\0\0\0\x02\0\0\0"

    key = extend(root_key(Namespace()), ids(1, 2))

    assert key == hashlib.sha256(root + words).digest()[:16]
    assert len(key) == KEY_BYTES == 16


def test_a_longer_prompt_keeps_the_keys_of_its_beginning() -> None:
    whole = random_ids(40)

    short = chain(Namespace(), whole[:20], Grid(8))
    long = chain(Namespace(), whole, Grid(8))

    assert long[: len(short)] == short


def test_a_changed_id_changes_every_key_above_it_and_none_below() -> None:
    one = random_ids(40)
    other = one.copy()
    other[17] += 1

    same = [
        a == b
        for a, b in zip(
            chain(Namespace(), one, Grid(8)), chain(Namespace(), other, Grid(8)), strict=True
        )
    ]

    assert same == [True, True, True, False, False, False]


def test_namespaces_share_no_key() -> None:
    whole = random_ids(40)

    plain = chain(Namespace(), whole, Grid(8))
    salted = chain(Namespace(salt="tenant"), whole, Grid(8))

    assert not set(plain) & set(salted)


def test_grids_share_no_key_but_the_root() -> None:
    whole = random_ids(64)

    fine, coarse = chain(Namespace(), whole, Grid(8)), chain(Namespace(), whole, Grid(16))

    assert set(fine) & set(coarse) == {root_key(Namespace())}
