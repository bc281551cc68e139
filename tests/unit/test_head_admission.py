"""Which prefixes of a prompt are worth keeping for every new session."""

from collections import Counter
from dataclasses import replace

import pytest

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.disk_index import DiskIndex
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Grid
from anchorline.domain.head_admission import HeadCause, PromptShape, head_lines
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.domain.tokens import TokenIds, token_ids
from support.builders import random_ids

STEP = 64
GRID = Grid(STEP)


def a_shape(
    length: int,
    *,
    start: int = 0,
    last_user: int = 0,
    first_answer: int | None = None,
    first_of_session: bool = False,
    clean: bool = True,
) -> PromptShape:
    answer = length if first_answer is None else first_answer
    return PromptShape(length, start, last_user, answer, first_of_session, clean)


def counts_of(*levels: tuple[int, int]) -> dict[int, int]:
    """Counts by line: each level is (up to this line, this count), ascending."""
    counts: dict[int, int] = {}
    below = 0
    for line, count in levels:
        counts.update(dict.fromkeys(GRID.lines(below, line), count))
        below = line
    return counts


class Sessions:
    """Prompts one after the other, with the counts and the medium that they leave behind."""

    def __init__(self, admit_after: int = 2) -> None:
        self.counts: Counter[PrefixKey] = Counter()
        self.index = DiskIndex()
        self.admit_after = admit_after

    def send(self, ids: TokenIds, *, first_of_session: bool = False, last_user: int = 0) -> int:
        """The line the prompt resumes at; afterwards its heads are stored."""
        chain = PromptChain(ids, Namespace(), GRID)
        found = self.index.continuations(chain, len(ids) - 1)
        start = found[0].line if found else 0
        passed = list(GRID.lines(start, len(ids)))
        self.counts.update(chain.key(line) for line in passed)
        counts = {line: self.counts[chain.key(line)] for line in passed}
        shape = a_shape(
            len(ids), start=start, first_of_session=first_of_session, last_user=last_user
        )
        for line in head_lines(shape, GRID, counts, self.admit_after):
            self.index.add(a_head(chain, line))
        return start


def a_head(chain: PromptChain, line: int) -> StoredEntry:
    def name(at: int, kind: str) -> ObjectName:
        return ObjectName(f"{chain.key(at).hex()}.{kind}")

    return StoredEntry(
        id=EntryId(chain.key(line).hex()),
        role=Role.HEAD,
        fingerprint=fingerprint_of({}),
        blocks=tuple(
            StoredBlock(name(at, "blk"), chain.key(at), at, 100) for at in GRID.lines(0, line)
        ),
        anchors=(StoredAnchor(name(line, "anc"), chain.key(line), line, AnchorKind.GRID, 50),),
        taint=line,
        end=None,
        session=None,
        hits=0,
        created_s=0.0,
        last_used_s=0.0,
    )


def with_own_end(shared: TokenIds, seed: int, tokens: int = 300) -> TokenIds:
    """A prompt that starts with the shared ids and goes on with ids of its own."""
    return token_ids([*shared.tolist(), *random_ids(tokens, seed=seed, below=10**9).tolist()])


class TestCounted:
    def test_the_third_of_ten_prompts_that_share_1000_tokens_resumes(self) -> None:
        sessions, shared = Sessions(), random_ids(1000)

        starts = [sessions.send(with_own_end(shared, seed)) for seed in range(10)]

        assert starts == [0, 0, *[960] * 8]

    def test_the_longest_line_that_was_counted_enough_is_kept(self) -> None:
        counts = counts_of((640, 2), (1280, 1))

        assert head_lines(a_shape(1300), GRID, counts, 2) == {640: HeadCause.COUNTED}

    def test_a_first_prompt_leaves_nothing(self) -> None:
        assert head_lines(a_shape(1300), GRID, counts_of((1280, 1)), 2) == {}

    def test_a_prompt_that_is_sent_again_is_kept_whole(self) -> None:
        assert head_lines(a_shape(1300), GRID, counts_of((1280, 2)), 2) == {1280: HeadCause.COUNTED}

    def test_what_counts_is_this_prompts_own_lines(self) -> None:
        # A count above the prompt's end belongs to some longer one.
        counts = counts_of((640, 1), (1280, 9))

        assert head_lines(a_shape(700), GRID, counts, 2) == {}

    def test_after_how_many_cold_forwards_is_a_setting(self) -> None:
        sessions, shared = Sessions(admit_after=4), random_ids(1000)

        starts = [sessions.send(with_own_end(shared, seed)) for seed in range(6)]

        assert starts == [0, 0, 0, 0, 960, 960]


class TestNever:
    def test_a_prompt_under_four_steps_leaves_nothing(self) -> None:
        counts = counts_of((255, 9))

        assert head_lines(a_shape(255, first_of_session=True, last_user=255), GRID, counts, 2) == {}

    def test_a_line_under_four_steps_is_not_kept(self) -> None:
        counts = counts_of((192, 9), (640, 1))

        assert head_lines(a_shape(700), GRID, counts, 2) == {}

    def test_four_steps_are_enough(self) -> None:
        assert head_lines(a_shape(256), GRID, counts_of((256, 2)), 2) == {256: HeadCause.COUNTED}

    def test_a_prompt_with_a_tainted_row_leaves_nothing(self) -> None:
        counts = counts_of((1280, 9))
        shape = a_shape(1300, first_of_session=True, last_user=1300, clean=False)

        assert head_lines(shape, GRID, counts, 2) == {}

    def test_a_line_that_was_resumed_is_not_kept_again(self) -> None:
        counts = counts_of((1280, 5))

        assert head_lines(a_shape(1300, start=1280), GRID, counts, 2) == {}


class TestSession:
    def test_the_first_prompt_of_a_session_keeps_the_last_4_lines_below_its_last_message(
        self,
    ) -> None:
        shape = a_shape(1300, first_of_session=True, last_user=1000)

        assert head_lines(shape, GRID, counts_of((1280, 1)), 2) == dict.fromkeys(
            (768, 832, 896, 960), HeadCause.SESSION
        )

    def test_a_message_that_starts_at_a_grid_line_leaves_that_line(self) -> None:
        shape = a_shape(1300, first_of_session=True, last_user=960)

        assert max(head_lines(shape, GRID, counts_of((1280, 1)), 2)) == 960

    def test_only_lines_that_the_prefill_passes_are_kept(self) -> None:
        shape = a_shape(1300, start=832, first_of_session=True, last_user=1000)

        assert list(head_lines(shape, GRID, counts_of((1280, 1)), 2)) == [896, 960]

    def test_a_prompt_without_a_user_message_keeps_none(self) -> None:
        shape = a_shape(1300, first_of_session=True, last_user=0)

        assert head_lines(shape, GRID, counts_of((1280, 1)), 2) == {}

    def test_the_next_session_with_the_same_head_resumes_right_away(self) -> None:
        sessions, shared = Sessions(), random_ids(1000)

        starts = [
            sessions.send(with_own_end(shared, seed), first_of_session=True, last_user=1000)
            for seed in range(3)
        ]

        assert starts == [0, 960, 960]


class TestBranches:
    def test_a_line_after_which_prompts_parted_is_kept(self) -> None:
        counts = counts_of((640, 5), (1024, 2), (1280, 1))

        assert head_lines(a_shape(1300), GRID, counts, 2) == {
            640: HeadCause.BRANCH,
            1024: HeadCause.COUNTED,
        }

    def test_the_four_longest_are_kept_beside_the_longest_counted_line(self) -> None:
        counts = counts_of((320, 9), (448, 8), (576, 7), (704, 6), (832, 5), (960, 4), (1280, 1))

        kept = head_lines(a_shape(1300), GRID, counts, 2)

        assert kept == {
            **dict.fromkeys((448, 576, 704, 832), HeadCause.BRANCH),
            960: HeadCause.COUNTED,
        }

    def test_branches_above_the_start_of_the_first_answer_are_not_kept(self) -> None:
        counts = counts_of((640, 5), (896, 4), (1024, 2), (1280, 1))

        assert head_lines(a_shape(1300, first_answer=640), GRID, counts, 2) == {
            640: HeadCause.BRANCH,
            1024: HeadCause.COUNTED,
        }
        assert head_lines(a_shape(1300, first_answer=639), GRID, counts, 2) == {
            1024: HeadCause.COUNTED
        }

    def test_a_line_whose_count_does_not_reach_the_threshold_is_no_branch(self) -> None:
        counts = counts_of((640, 3), (1024, 2), (1280, 1))

        assert head_lines(a_shape(1300), GRID, counts, 3) == {640: HeadCause.COUNTED}

    def test_where_folders_part_is_kept_though_one_folders_own_head_is_longer(self) -> None:
        # One client in two folders; a new arithmetic, which counts outlive; the first folder again,
        # whose longest repeated line is its own; and a new folder (tandem-caches, "Disk tier").
        sessions, client = Sessions(), random_ids(1000)
        folders = [with_own_end(client, seed, tokens=500) for seed in (100, 200, 300)]
        for seed in (0, 1):
            sessions.send(with_own_end(folders[seed], seed))
        sessions.index = DiskIndex()

        starts = [
            sessions.send(with_own_end(folders[folder], seed))
            for seed, folder in ((2, 0), (3, 2), (4, 0))
        ]

        assert starts == [0, 960, 1472]


class TestPartialHeads:
    def test_a_head_that_lost_a_block_is_passed_cold_and_kept_again(self) -> None:
        sessions, shared = Sessions(), random_ids(1000)
        for seed in range(3):
            sessions.send(with_own_end(shared, seed))
        (head,) = sessions.index.entries()
        sessions.index.add(replace(head, blocks=head.blocks[:5]))

        starts = [sessions.send(with_own_end(shared, seed)) for seed in (10, 11)]

        assert starts == [0, 960]


def test_an_entry_that_is_first_counted_and_first_of_its_session_says_counted() -> None:
    shape = a_shape(1300, first_of_session=True, last_user=1000)

    kept = head_lines(shape, GRID, counts_of((960, 2), (1280, 1)), 2)

    assert kept == {**dict.fromkeys((768, 832, 896), HeadCause.SESSION), 960: HeadCause.COUNTED}


@pytest.mark.parametrize("step", [1, 64, 1024])
def test_thresholds_are_counted_in_grid_steps(step: int) -> None:
    counts = dict.fromkeys(range(step, 11 * step, step), 2)

    assert head_lines(a_shape(4 * step), Grid(step), counts, 2) == {4 * step: HeadCause.COUNTED}
    assert head_lines(a_shape(4 * step - 1), Grid(step), counts, 2) == {}
