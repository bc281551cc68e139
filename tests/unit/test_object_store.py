"""Objects of state: written as they are named, and read as they were written or not at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from anchorline.adapters.codec.plane_codec import PlaneCodec
from anchorline.adapters.memory.crashable_storage import CrashableStorage, CrashedHere
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.application.object_parts import (
    EMPTY_PART,
    HEADER_ROOM_BYTES,
    PartSpec,
    draft_parts,
    name_of,
    part_views,
    payload_bytes,
    row_parts,
    section_parts,
)
from anchorline.application.object_store import ObjectStore
from anchorline.domain.content_chain import NO_ROWS
from anchorline.domain.end import End
from anchorline.domain.entry import Role
from anchorline.domain.errors import ObjectCorrupt, ObjectMissing, StorageFull
from anchorline.domain.grid import Span
from anchorline.domain.layout import Section, View
from anchorline.domain.namespace import Namespace
from anchorline.domain.object_header import LINE_BYTES, ObjectHeader, ObjectKind
from anchorline.domain.prefix_key import extend, root_key
from anchorline.domain.stored_entry import ObjectName
from anchorline.domain.sums import sums_of
from anchorline.ports.block_storage import ByteArray
from anchorline.ports.codec import Codec
from support.builders import random_ids
from support.stored_objects import FINGERPRINT

CODECS: list[Callable[[], Codec]] = [PlainCodec, PlaneCodec]
VIEWS = (
    View("k", "bfloat16", (3, 7), "kv:plain"),  # 42 bytes a row: whole lines only by chance
    View("v", "bfloat16", (128,), "kv:plain"),
    View("check", "uint8", (5,), "check:hash"),
)
SECTIONS = (Section("s", "float32", (24, 33), "recurrent:state"),)
TOKENS = 64
LONG = 1024
"""Tokens of a block whose parts are many lines long."""


class WatchedStorage(CrashableStorage):
    """Remembers what `put` was given."""

    given: tuple[ByteArray, ...] = ()

    def put(self, name: ObjectName, parts: Sequence[ByteArray]) -> int:
        self.given = tuple(parts)
        return super().put(name, parts)


def values(spec: PartSpec, seed: int) -> ByteArray:
    """Bytes as honest tensors have them: floats compress, bytes are noise."""
    random = np.random.default_rng([seed, *spec.name.encode()])
    if spec.dtype == "uint8":
        return random.integers(0, 256, spec.nbytes, dtype=np.uint8)
    floats = random.standard_normal(spec.nbytes // 4 + 1).astype("<f4").view(np.uint8)
    if spec.dtype == "bfloat16":
        wide = random.standard_normal(spec.nbytes // 2).astype("<f4").view("<u4")
        return (wide >> 16).astype("<u2").view(np.uint8)
    return floats[: spec.nbytes]


def a_payload(specs: Sequence[PartSpec], seed: int = 0) -> ByteArray:
    """A staging buffer as an engine fills it: garbage stands between the parts."""
    payload = np.full(payload_bytes(specs) + HEADER_ROOM_BYTES, 0xEE, dtype=np.uint8)
    views = part_views(payload, specs)
    for spec in specs:
        views[spec.name][:] = values(spec, seed)
    return payload


def a_draft(
    specs: Sequence[PartSpec],
    payload: ByteArray,
    *,
    kind: ObjectKind = ObjectKind.BLOCK,
    seed: int = 0,
    session: str | None = None,
    tokens: int = TOKENS,
) -> ObjectHeader:
    ids = random_ids(tokens, seed=seed)
    previous = root_key(Namespace())
    sums = {name: sums_of(view) for name, view in part_views(payload, specs).items()}
    is_end = kind is ObjectKind.END
    return ObjectHeader(
        fingerprint=FINGERPRINT,
        namespace=Namespace(),
        kind=kind,
        key=extend(previous, ids),
        previous=previous,
        below=NO_ROWS,
        span=Span(0, tokens),
        token_ids=ids,
        key_ids=ids,
        taint=tokens,
        role=Role.CONVERSATION,
        session=session,
        end=End(tokens, (Span(1, 3),), (Span(0, tokens),)) if is_end else None,
        parts=draft_parts(specs, sums),
    )


def stored(
    codec: Codec | None = None, *, seed: int = 0, session: str | None = None
) -> tuple[CrashableStorage, ObjectStore, ObjectName, int]:
    """A storage with one block in it."""
    storage = CrashableStorage()
    store = ObjectStore(storage, codec or PlaneCodec())
    specs = row_parts(VIEWS, TOKENS)
    payload = a_payload(specs, seed)
    draft = a_draft(specs, payload, seed=seed, session=session)
    return storage, store, name_of(draft), store.write(draft, payload).nbytes


def read_back(store: ObjectStore, name: ObjectName, nbytes: int) -> Mapping[str, ByteArray]:
    return store.read(name, nbytes, store.storage.buffer(nbytes)).parts


class TestRoundTrip:
    @pytest.mark.parametrize("make_codec", CODECS)
    @pytest.mark.parametrize("kind", ObjectKind)
    def test_an_object_comes_back_as_it_was(
        self, make_codec: Callable[[], Codec], kind: ObjectKind
    ) -> None:
        store = ObjectStore(CrashableStorage(), make_codec())
        is_block = kind is ObjectKind.BLOCK
        specs = row_parts(VIEWS, TOKENS) if is_block else section_parts(SECTIONS)
        payload = a_payload(specs)
        draft = a_draft(specs, payload, kind=kind, session="s")

        nbytes = store.write(draft, payload).nbytes
        found = store.read(name_of(draft), nbytes, store.storage.buffer(nbytes))

        assert {name: part.tobytes() for name, part in found.parts.items()} == {
            spec.name: values(spec, 0).tobytes() for spec in specs
        }
        header = found.header
        assert (header.kind, header.span, header.key) == (kind, draft.span, draft.key)
        assert (header.end, header.session, header.taint) == (draft.end, "s", draft.taint)
        assert header.token_ids.tolist() == draft.token_ids.tolist()
        assert [part.sums for part in header.parts] == [part.sums for part in draft.parts]

    @pytest.mark.parametrize("make_codec", CODECS)
    @pytest.mark.parametrize("nbytes", [1, 2, 4095, 4096, 4097, 12_288, 20_001])
    def test_parts_of_any_length_come_back(
        self, make_codec: Callable[[], Codec], nbytes: int
    ) -> None:
        store = ObjectStore(CrashableStorage(), make_codec())
        specs = (PartSpec("a", "uint8", (nbytes,)), PartSpec("b", "bfloat16", (nbytes,)))
        payload = a_payload(specs)
        draft = a_draft(specs, payload)

        found = read_back(store, name_of(draft), store.write(draft, payload).nbytes)

        assert [found[spec.name].tobytes() for spec in specs] == [
            values(spec, 0).tobytes() for spec in specs
        ]

    @pytest.mark.parametrize("make_codec", CODECS)
    def test_an_object_without_bytes_still_names_its_tokens(
        self, make_codec: Callable[[], Codec]
    ) -> None:
        storage = CrashableStorage()
        store = ObjectStore(storage, make_codec())
        specs = row_parts((), TOKENS)
        draft = a_draft(specs, a_payload(specs))

        nbytes = store.write(draft, np.empty(0, dtype=np.uint8)).nbytes
        found = store.read(name_of(draft), nbytes, storage.buffer(nbytes))

        assert nbytes == len(storage.content(name_of(draft))) == LINE_BYTES
        assert [(name, len(part)) for name, part in found.parts.items()] == [(EMPTY_PART, 0)]
        assert found.header.token_ids.tolist() == draft.token_ids.tolist()

    def test_objects_without_bytes_of_other_tokens_have_other_names(self) -> None:
        specs = section_parts(())
        payload = a_payload(specs)

        assert name_of(a_draft(specs, payload, seed=1)) != name_of(a_draft(specs, payload, seed=2))

    def test_a_part_without_elements_stands_beside_others(self) -> None:
        store = ObjectStore(CrashableStorage(), PlaneCodec())
        specs = (PartSpec("none", "float32", (0, 4)), PartSpec("b", "bfloat16", (3000,)))
        payload = a_payload(specs)
        draft = a_draft(specs, payload)

        found = read_back(store, name_of(draft), store.write(draft, payload).nbytes)

        assert len(found["none"]) == 0
        assert found["b"].tobytes() == values(specs[1], 0).tobytes()

    def test_a_header_of_many_lines_is_read_whole(self) -> None:
        store = ObjectStore(CrashableStorage(), PlaneCodec())
        specs = row_parts(VIEWS[:1], 3000)
        payload = a_payload(specs)
        draft = a_draft(specs, payload, tokens=3000)

        nbytes = store.write(draft, payload).nbytes

        header = store.read_header(name_of(draft))
        assert header.parts[0].offset > 2 * LINE_BYTES
        assert header.token_ids.tolist() == draft.token_ids.tolist()
        assert read_back(store, name_of(draft), nbytes)["k"].tobytes() == (
            values(specs[0], 0).tobytes()
        )

    def test_the_length_told_is_the_length_on_the_medium(self) -> None:
        storage, store, name, nbytes = stored()

        assert nbytes == len(storage.content(name)) == store.read_header(name).object_bytes


class TestCodecs:
    def test_each_part_is_compressed_or_not_by_itself(self) -> None:
        _, store, name, nbytes = stored(PlaneCodec())

        codecs = {part.name: part.codec for part in store.read_header(name).parts}

        assert codecs == {"k": "planes-1", "v": "planes-1", "check": "raw"}
        assert read_back(store, name, nbytes)["v"].tobytes() == (
            values(row_parts(VIEWS, TOKENS)[1], 0).tobytes()
        )

    def test_compression_makes_an_object_shorter_and_its_name_no_other(self) -> None:
        _, _, plain_name, plain_bytes = stored(PlainCodec())
        _, _, coded_name, coded_bytes = stored(PlaneCodec())

        assert plain_name == coded_name
        assert coded_bytes < plain_bytes

    def test_a_store_reads_what_another_codec_left_raw(self) -> None:
        storage, _, name, nbytes = stored(PlainCodec())

        found = read_back(ObjectStore(storage, PlaneCodec()), name, nbytes)

        assert found["k"].tobytes() == values(row_parts(VIEWS, TOKENS)[0], 0).tobytes()

    def test_a_codec_that_nobody_knows_is_refused(self) -> None:
        storage, _, name, nbytes = stored(PlaneCodec())

        with pytest.raises(ObjectCorrupt, match="no codec"):
            read_back(ObjectStore(storage, PlainCodec()), name, nbytes)


class TestNames:
    def test_a_draft_has_the_name_the_object_is_stored_under(self) -> None:
        storage, store, name, _ = stored()

        assert [found.name for found in storage.names()] == [name]
        assert name_of(store.read_header(name)) == name

    def test_one_changed_byte_is_another_name(self) -> None:
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)
        before = name_of(a_draft(specs, payload))

        part_views(payload, specs)["v"][-1] ^= 1

        assert name_of(a_draft(specs, payload)) != before

    def test_sums_that_are_missing_are_a_fault_and_no_default(self) -> None:
        specs = row_parts(VIEWS, TOKENS)

        with pytest.raises(KeyError):
            draft_parts(specs, {"k": sums_of(np.zeros(8, dtype=np.uint8))})


class TestWrittenBefore:
    def test_an_object_that_is_there_is_not_written_again(self) -> None:
        storage, store, name, nbytes = stored()
        before = storage.content(name)
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)

        assert store.write(a_draft(specs, payload), payload).nbytes == nbytes
        assert storage.content(name) == before

    def test_the_length_told_is_that_of_the_object_that_is_there(self) -> None:
        # Another codec, or a longer header, would have made it longer or shorter.
        for first, second in ((PlainCodec(), PlaneCodec()), (PlaneCodec(), PlainCodec())):
            storage, _, name, nbytes = stored(first)
            specs = row_parts(VIEWS, TOKENS)
            payload = a_payload(specs)
            draft = a_draft(specs, payload, session="s" * 4000)

            told = ObjectStore(storage, second).write(draft, payload).nbytes

            assert told == nbytes == len(storage.content(name))
            read_back(ObjectStore(storage, PlaneCodec()), name, told)

    def test_a_damaged_object_that_is_there_is_refused_and_not_taken_for_this_one(self) -> None:
        storage, store, name, _ = stored()
        content = bytearray(storage.content(name))
        content[100] ^= 1
        storage.overwrite(name, bytes(content))
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)

        with pytest.raises(ObjectCorrupt):
            store.write(a_draft(specs, payload), payload)

        storage.quarantine(name, "damaged")
        nbytes = store.write(a_draft(specs, payload), payload).nbytes
        read_back(store, name, nbytes)


class TestBuffers:
    def test_raw_parts_are_written_from_where_they_stand(self) -> None:
        storage = WatchedStorage()
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)

        ObjectStore(storage, PlainCodec()).write(a_draft(specs, payload), payload)

        header, body = storage.given
        assert len(header) % LINE_BYTES == 0
        assert np.shares_memory(body, payload)
        assert len(body) == payload_bytes(specs)

    def test_raw_parts_beside_compressed_ones_are_written_from_where_they_stand(self) -> None:
        storage = WatchedStorage()
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)

        ObjectStore(storage, PlaneCodec()).write(a_draft(specs, payload), payload)

        assert [np.shares_memory(piece, payload) for piece in storage.given] == [
            False,  # the header
            False,
            False,
            True,
        ]

    @pytest.mark.parametrize("make_codec", CODECS)
    def test_writing_changes_no_part_and_clears_the_fill_it_writes(
        self, make_codec: Callable[[], Codec]
    ) -> None:
        storage = WatchedStorage()
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)
        draft = a_draft(specs, payload)

        ObjectStore(storage, make_codec()).write(draft, payload)

        views = part_views(payload, specs)
        assert all((views[spec.name] == values(spec, 0)).all() for spec in specs)
        for part in ObjectStore(storage, PlaneCodec()).read_header(name_of(draft)).parts:
            fill = storage.content(name_of(draft))[part.offset + part.stored_bytes :]
            assert not any(fill[: part.padded_bytes - part.stored_bytes])

    def test_a_buffer_is_free_again_once_its_object_is_written(self) -> None:
        store = ObjectStore(CrashableStorage(), PlainCodec())
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)
        draft = a_draft(specs, payload)

        nbytes = store.write(draft, payload).nbytes
        payload[:] = 0

        assert read_back(store, name_of(draft), nbytes)["k"].tobytes() == (
            values(specs[0], 0).tobytes()
        )

    def test_parts_are_read_into_the_staging_buffer_where_it_was_made_for_their_state(self) -> None:
        for codec in (PlaneCodec(), PlainCodec()):
            _, store, name, nbytes = stored(codec)
            room = payload_bytes(row_parts(VIEWS, TOKENS)) + HEADER_ROOM_BYTES
            staging = store.storage.buffer(room)

            parts = store.read(name, nbytes, staging).parts

            assert [np.shares_memory(parts[part], staging) for part in parts] == [True] * 3

    def test_parts_are_exact_however_little_room_there_is_to_unpack_them_in(self) -> None:
        store = ObjectStore(CrashableStorage(), PlaneCodec())
        names = ("a", "b", "check", "c", "d")
        views = [replace(VIEWS[2 if name == "check" else 0], name=name) for name in names]
        specs = row_parts(views, LONG)
        payload = a_payload(specs)
        draft = a_draft(specs, payload, tokens=LONG)
        nbytes = store.write(draft, payload).nbytes
        unpacked: set[int] = set()

        for length in range(nbytes, payload_bytes(specs) + 8 * LINE_BYTES, LINE_BYTES):
            staging = store.storage.buffer(length)[:length]
            parts = store.read(name_of(draft), nbytes, staging).parts
            changed = [one for one in specs if not np.array_equal(parts[one.name], values(one, 0))]
            assert changed == [], length
            unpacked.add(sum(np.shares_memory(part, staging) for part in parts.values()))

        assert min(unpacked) < max(unpacked) == len(specs)

    def test_a_buffer_that_is_too_short_is_a_programmers_error(self) -> None:
        _, store, name, nbytes = stored()
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)

        with pytest.raises(AssertionError):
            store.read(name, nbytes, store.storage.buffer(nbytes - LINE_BYTES))
        with pytest.raises(AssertionError):
            store.write(a_draft(specs, payload), payload[: payload_bytes(specs) - 1])

    def test_parts_stand_one_after_the_other_at_whole_lines(self) -> None:
        specs = row_parts(VIEWS, TOKENS)
        payload = np.arange(payload_bytes(specs), dtype=np.uint64).astype(np.uint8)

        views = part_views(payload, specs)

        assert payload_bytes(specs) == LINE_BYTES + 4 * LINE_BYTES + LINE_BYTES
        assert [len(view) for view in views.values()] == [64 * 42, 64 * 256, 64 * 5]
        assert views["check"].tobytes() == payload[5 * LINE_BYTES :][: 64 * 5].tobytes()


class TestDamage:
    """Whatever happened to an object, it is refused."""

    @pytest.mark.parametrize("make_codec", CODECS)
    def test_any_flipped_bit_is_refused(self, make_codec: Callable[[], Codec]) -> None:
        codec = make_codec()
        storage, _, name, nbytes = stored(codec)
        store = ObjectStore(storage, PlaneCodec())
        content = storage.content(name)
        random = np.random.default_rng(5)
        # Every line, its first and last bytes, and bits drawn from the whole object.
        ends = [at + side for at in range(0, nbytes, LINE_BYTES) for side in (0, LINE_BYTES - 1)]
        bits = [8 * at + int(random.integers(8)) for at in ends]
        bits += random.integers(0, 8 * nbytes, 1500).tolist()

        for bit in bits:
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            storage.overwrite(name, bytes(damaged))
            with pytest.raises(ObjectCorrupt):
                read_back(store, name, nbytes)

    def test_every_flipped_bit_of_the_first_bytes_is_refused(self) -> None:
        storage, store, name, nbytes = stored()
        content = storage.content(name)

        for bit in range(8 * 200):
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            storage.overwrite(name, bytes(damaged))
            with pytest.raises(ObjectCorrupt):
                store.read_header(name)
            with pytest.raises(ObjectCorrupt):
                read_back(store, name, nbytes)

    def test_any_truncation_is_refused(self) -> None:
        storage, store, name, nbytes = stored()
        content = storage.content(name)

        for length in [*range(0, nbytes, 1000), *range(0, nbytes, LINE_BYTES)]:
            storage.overwrite(name, content[:length])
            with pytest.raises(ObjectCorrupt):
                read_back(store, name, nbytes)

    def test_lost_lines_that_read_as_zeros_are_refused(self) -> None:
        storage, store, name, nbytes = stored(PlainCodec())
        content = storage.content(name)

        for at in range(0, nbytes, LINE_BYTES):
            storage.overwrite(name, content[:at] + bytes(LINE_BYTES) + content[at + LINE_BYTES :])
            with pytest.raises(ObjectCorrupt):
                read_back(store, name, nbytes)

    def test_an_object_under_anothers_name_is_refused(self) -> None:
        storage, store, name, _ = stored(seed=1)
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs, 2)
        other = a_draft(specs, payload, seed=2)
        nbytes = store.write(other, payload).nbytes

        storage.overwrite(name, storage.content(name_of(other)))

        with pytest.raises(ObjectCorrupt, match="says that it is"):
            read_back(store, name, nbytes)
        with pytest.raises(ObjectCorrupt, match="says that it is"):
            store.read_header(name)

    def test_anothers_payload_behind_a_header_is_refused(self) -> None:
        storage, store, name, nbytes = stored(PlainCodec(), seed=1)
        other_storage, _, other, _ = stored(PlainCodec(), seed=2)
        header_bytes = store.read_header(name).parts[0].offset

        mixed = storage.content(name)[:header_bytes] + other_storage.content(other)[header_bytes:]
        storage.overwrite(name, mixed)

        with pytest.raises(ObjectCorrupt):
            read_back(store, name, nbytes)

    def test_two_parts_that_were_exchanged_are_refused(self) -> None:
        storage = CrashableStorage()
        store = ObjectStore(storage, PlainCodec())
        specs = (PartSpec("a", "uint8", (4096,)), PartSpec("b", "uint8", (4096,)))
        payload = a_payload(specs)
        draft = a_draft(specs, payload)
        nbytes = store.write(draft, payload).nbytes
        name = name_of(draft)
        content = storage.content(name)

        storage.overwrite(name, content[:4096] + content[8192:] + content[4096:8192])

        with pytest.raises(ObjectCorrupt):
            read_back(store, name, nbytes)

    @pytest.mark.parametrize("lines", [0, 1, 3, -1])
    def test_a_length_that_is_not_the_objects_is_refused(self, lines: int) -> None:
        storage, store, name, nbytes = stored()
        storage.overwrite(name, storage.content(name) + bytes(8 * LINE_BYTES))
        told = nbytes + LINE_BYTES if lines == -1 else lines * LINE_BYTES

        with pytest.raises(ObjectCorrupt):
            read_back(store, name, told)


class TestFailures:
    def test_an_object_that_is_not_there_is_missing(self) -> None:
        _, _, name, nbytes = stored()
        store = ObjectStore(CrashableStorage(), PlaneCodec())

        with pytest.raises(ObjectMissing):
            read_back(store, name, nbytes)
        with pytest.raises(ObjectMissing):
            store.read_header(name)

    def test_an_object_that_does_not_fit_leaves_nothing(self) -> None:
        storage = CrashableStorage(bytes_max=2 * LINE_BYTES)
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)

        with pytest.raises(StorageFull):
            ObjectStore(storage, PlainCodec()).write(a_draft(specs, payload), payload)

        assert list(storage.names()) == []
        assert storage.space().used == 0

    @pytest.mark.parametrize("step", ["write", "sync file", "rename"])
    def test_a_write_that_a_crash_stopped_can_be_made_again(self, step: str) -> None:
        def crash_at(now: str) -> None:
            if now == step:
                raise CrashedHere

        storage = CrashableStorage(on_step=crash_at)
        specs = row_parts(VIEWS, TOKENS)
        payload = a_payload(specs)
        draft = a_draft(specs, payload)
        with pytest.raises(CrashedHere):
            ObjectStore(storage, PlaneCodec()).write(draft, payload)

        store = ObjectStore(storage.crash(), PlaneCodec())
        with pytest.raises(ObjectMissing):
            store.read_header(name_of(draft))
        read_back(store, name_of(draft), store.write(draft, payload).nbytes)


def test_an_object_that_says_it_is_of_other_tokens_has_another_name() -> None:
    specs = row_parts(VIEWS, TOKENS)
    payload = a_payload(specs)
    draft = a_draft(specs, payload)

    other = replace(draft, key=extend(draft.key, random_ids(1)))

    assert name_of(other) != name_of(draft)
