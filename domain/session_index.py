"""Where each session's conversation stands, so that a known session need not be searched for.

A preference, never an identity: whoever takes a place from here compares tokens as with any other,
and a session that is not here, or not rightly here, is found by its tokens all the same. Sessions
of two namespaces have nothing to do with each other, though a client gives them one hint.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from .entry import EntryId, Tier
from .namespace import Namespace
from .prefix_key import PrefixKey, root_key

SESSIONS_MAX: Final = 4096
"""Sessions that are remembered; the one whose last use is longest ago goes first."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation's newest state stands.

    Attributes:
        where: the number of a slot, or the id of an entry in another tier.
    """

    tier: Tier
    where: EntryId | int

    def __post_init__(self) -> None:
        if isinstance(self.where, int) != (self.tier is Tier.SLOT):
            raise ValueError(f"{self.where!r} is no place in the tier {self.tier.value}")


_Session: TypeAlias = tuple[PrefixKey, str]
"""The digest of a namespace, and the hint: no salt is kept here."""


@dataclass(frozen=True, slots=True)
class _Noted:
    place: Place
    at: float


class SessionIndex:
    """The newest place of each session."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        """Remembers so many sessions at most, and none yet."""
        assert sessions_max > 0, f"{sessions_max} sessions"
        self._sessions_max = sessions_max
        self._noted: dict[_Session, _Noted] = {}
        self._standing: dict[Place, dict[_Session, None]] = {}

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, namespace: Namespace, session: str, place: Place, at: float) -> None:
        """A session's conversation stands at a place; what is older than what is known is ignored.

        Args:
            at: when the conversation came to be as it stands there, in seconds of any one clock. A
                copy that is made later is as old as what it is a copy of: it does not take the
                place of a nearer one.
        """
        key = (root_key(namespace), session)
        known = self._noted.get(key)
        if known is not None:
            nearer = known.place.tier.distance < place.tier.distance
            if known.at > at or (known.at == at and nearer):
                return
        self._drop(key)
        self._noted[key] = _Noted(place, at)
        self._standing.setdefault(place, {})[key] = None
        if len(self._noted) > self._sessions_max:
            self._drop(min(self._noted, key=lambda one: self._noted[one].at))

    def find(self, namespace: Namespace, session: str) -> Place | None:
        """Where the session's conversation stands; None if that is not known."""
        known = self._noted.get((root_key(namespace), session))
        return None if known is None else known.place

    def close(self, session: str, namespace: Namespace | None = None) -> int:
        """Forget where a session stands, and nothing of what stands there; how many there were.

        Args:
            namespace: of the session; None closes those of all namespaces with this hint.
        """
        root = None if namespace is None else root_key(namespace)
        closed = [key for key in self._noted if key[1] == session and root in (None, key[0])]
        for key in closed:
            self._drop(key)
        return len(closed)

    def forget(self, place: Place) -> None:
        """Nothing stands at a place any more, or something else does."""
        for key in tuple(self._standing.get(place, ())):
            self._drop(key)

    def _drop(self, key: _Session) -> None:
        known = self._noted.pop(key, None)
        if known is None:
            return
        standing = self._standing[known.place]
        del standing[key]
        if not standing:
            del self._standing[known.place]
