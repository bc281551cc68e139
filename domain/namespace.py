"""What separates state that must never meet: adapters, salts and KV schemes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Namespace:
    """State made under one namespace is invisible to every other.

    Attributes:
        salt: the caller's `cache_salt`; "" is the shared namespace of callers without one.
        adapter: the adapter's id with its content hash and scale; "" is the bare model.
        kv_scheme: how rows are stored; "plain" is the model's own dtype.
    """

    salt: str = ""
    adapter: str = ""
    kv_scheme: str = "plain"

    def canonical(self) -> bytes:
        """An injective encoding: equal bytes if and only if the namespaces are equal."""
        parts = (self.salt.encode(), self.adapter.encode(), self.kv_scheme.encode())
        return b"".join(len(part).to_bytes(4, "little") + part for part in parts)
