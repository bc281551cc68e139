"""Ids of stored entries: the same tokens under the same role have the same id, whoever asks."""

from ..domain.entry import EntryId, Role
from ..domain.fingerprint import Fingerprint
from ..domain.prefix_key import PrefixKey


def entry_id(role: Role, fingerprint: Fingerprint, key: PrefixKey) -> EntryId:
    """The id of the state whose highest line has `key`: writing it again replaces the entry."""
    return EntryId(f"{role.value}-{fingerprint[:16]}-{key.hex()}")
