"""Every error the package raises, as one tree.

AnchorlineError
├── SettingsError            a flag, variable or configuration file that cannot be used
├── ModelError
│   ├── ModelNotFound        no such model here, and how to get one
│   └── ModelRefused         a model whose state could not be kept exactly, and why
├── RequestError             the caller's fault; carries the field it is about
│   └── PromptTooLong
├── Unavailable              the server's state: try again after some seconds
│   ├── QueueFull
│   ├── MemoryShort          a prefill does not fit the memory that is left
│   └── Draining
├── StateError               state that must not reach a forward pass
│   ├── RowsChanged          rows became others while they were being copied
│   └── WrongLine            parts that are not of one line
├── EngineError              a forward pass failed
├── StorageError             what outlives the process
│   ├── ObjectMissing        there is no object of that name
│   ├── ObjectCorrupt        an object's bytes are not what was written
│   ├── StorageFull          no room, on the medium or within the limit
│   ├── StorageReadOnly      nothing may be written
│   └── StorageUnavailable   the medium failed, or is in use by another process
└── Cancelled                nobody waits for the answer any more

A cache miss is a value, not an error.
"""


class AnchorlineError(Exception):
    """The root of the tree."""


class SettingsError(AnchorlineError):
    """A setting that cannot be used; the message names it and what it may be."""


class ModelError(AnchorlineError):
    """A model that cannot be served."""


class ModelNotFound(ModelError):
    """There is no such model here; the message says how to get one."""


class ModelRefused(ModelError):
    """The model's state could not be kept exactly; the message says why."""


class RequestError(AnchorlineError):
    """A request that cannot be served as it is.

    Attributes:
        field: the body's field it is about, in dotted form (`messages.2.content`), or None.
        code: the machine-readable reason, as OpenAI's API spells such codes.
    """

    def __init__(self, message: str, *, field: str | None = None, code: str = "invalid_value"):
        super().__init__(message)
        self.field = field
        self.code = code


class PromptTooLong(RequestError):
    """The prompt does not fit the model's window."""

    def __init__(self, tokens: int, window: int, *, field: str = "messages"):
        super().__init__(
            f"the prompt is {tokens} tokens long and the window holds {window}, one of which is "
            "needed for the answer; shorten the conversation",
            field=field,
            code="context_length_exceeded",
        )
        self.tokens = tokens
        self.window = window


class Unavailable(AnchorlineError):
    """The server cannot take the request now.

    Attributes:
        retry_after_s: whole seconds after which another try makes sense.
    """

    def __init__(self, message: str, *, retry_after_s: int):
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Unavailable):
    """As many requests wait as may wait."""


class MemoryShort(Unavailable):
    """A prefill does not fit, with every cache given back that may be; the message has numbers."""


class Draining(Unavailable):
    """The server is about to stop and takes no new work."""


class StateError(AnchorlineError):
    """State that must not reach a forward pass."""


class RowsChanged(StateError):
    """Rows that were being copied are not what they were when that began."""


class WrongLine(StateError):
    """Rows and sections of different lines were about to be used together."""


class EngineError(AnchorlineError):
    """A forward pass failed; what it was writing is not to be used."""


class Cancelled(AnchorlineError):
    """A request was given up by its client before it had a slot."""


class StorageError(AnchorlineError):
    """Something about what outlives the process."""


class ObjectMissing(StorageError):
    """There is no object of that name."""


class ObjectCorrupt(StorageError):
    """An object's bytes are not what was written; it is to be quarantined."""


class StorageFull(StorageError):
    """There is no room, on the medium or within the limit."""


class StorageReadOnly(StorageError):
    """Nothing may be written here."""


class StorageUnavailable(StorageError):
    """The medium failed, or another process uses it."""
