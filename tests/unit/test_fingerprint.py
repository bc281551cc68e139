"""Which arithmetic made a state."""

from anchorline.domain.fingerprint import fingerprint_of


def test_a_fingerprint_is_64_hexadecimal_digits() -> None:
    fingerprint = fingerprint_of({"weights": "abc"})

    assert len(fingerprint) == 64
    assert set(fingerprint) <= set("0123456789abcdef")


def test_a_fingerprint_does_not_change_between_versions_of_the_package() -> None:
    # State on disk is found by it: a formula that changes needs another name in the digest.
    assert (
        fingerprint_of({"grid": "64", "weights": "ä"})
        == "392a0ebb68d20581416732679dc0056272a8ee07d5bb7ac7fcc2e9fe14796c94"
    )


def test_the_order_of_facts_does_not_matter() -> None:
    assert fingerprint_of({"a": "1", "b": "2"}) == fingerprint_of({"b": "2", "a": "1"})


def test_every_fact_decides() -> None:
    facts = {"weights": "w", "grid": "64", "threads": "2"}
    changed = [facts | {name: "other"} for name in facts]
    fewer = [{other: facts[other] for other in facts if other != name} for name in facts]

    fingerprints = {fingerprint_of(each) for each in (facts, *changed, *fewer)}

    assert len(fingerprints) == 1 + len(changed) + len(fewer)


def test_text_cannot_move_between_facts() -> None:
    assert fingerprint_of({"a": '1","b":"2'}) != fingerprint_of({"a": "1", "b": "2"})
    assert fingerprint_of({"ab": "c"}) != fingerprint_of({"a": "bc"})
