"""The one record of kept state."""

from anchorline.domain.entry import Tier


def test_tiers_are_ordered_from_the_nearest() -> None:
    ordered = sorted(Tier, key=lambda tier: tier.distance)

    assert ordered == [Tier.SLOT, Tier.RAM, Tier.DISK, Tier.REMOTE, Tier.NONE]
