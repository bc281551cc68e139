"""What separates state that must never meet."""

import itertools

from anchorline.domain.namespace import Namespace


def test_a_caller_without_wishes_is_in_the_shared_namespace() -> None:
    assert Namespace() == Namespace(salt="", adapter="", kv_scheme="plain")


def test_the_encoding_is_equal_only_for_equal_namespaces() -> None:
    texts = ["", "a", "b", "ab", "plain", "\0", "a\0", "ä"]
    namespaces = [Namespace(*parts) for parts in itertools.product(texts, repeat=3)]

    encodings = {namespace.canonical() for namespace in namespaces}

    assert len(encodings) == len(namespaces)


def test_text_cannot_move_from_one_part_to_the_next() -> None:
    assert Namespace("ab", "c").canonical() != Namespace("a", "bc").canonical()
