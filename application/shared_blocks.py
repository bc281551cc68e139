"""Which kept blocks hold which tokens, so that rows of equal prefixes are kept once."""

from collections.abc import Sequence

from ..domain.grid import Grid, Span
from ..domain.namespace import Namespace
from ..domain.prefix_key import PrefixKey
from ..domain.prompt import Prompt
from ..domain.prompt_chain import PromptChain
from .kept_blocks import KeptBlock, KeptBlocks
from .kept_state import KeptState


class SharedBlocks:
    """The clean blocks of all entries, by what stands in them. On the engine thread.

    Only rows that a cold prefill on the grid wrote are shared: any other such prefill of the same
    tokens has written the same bits.
    """

    def __init__(self, blocks: KeptBlocks, grid: Grid) -> None:
        """Knows of none."""
        self._blocks = blocks
        self._grid = grid
        # By namespace too: keys are hints, and no token tells whose rows they are.
        self._clean: dict[tuple[Namespace, PrefixKey], KeptBlock] = {}

    def in_place(self, slot: int, state: KeptState, chain: PromptChain) -> tuple[KeptBlock, ...]:
        """The blocks of a slot's conversation: those that are kept already, where they are equal.

        Args:
            chain: over the state's tokens.
        """
        blocks: list[KeptBlock] = []
        for span in self._grid.chunks(0, state.line):
            below = blocks[-1] if blocks else None
            blocks.append(self._block(slot, span, below, state, chain))
        return tuple(blocks)

    def standing(self, prompt: Prompt, chain: PromptChain, line: int) -> list[KeptBlock]:
        """The blocks of a prompt, from row 0 up to a line, that any cold prefill would write."""
        found: list[KeptBlock] = []
        for span in self._grid.chunks(0, line):
            below = found[-1] if found else None
            block = self._clean.get(_key(chain, span.end)) if self._grid.has(span.end) else None
            if block is None or not block.is_of(
                prompt.ids[span.start : span.end], prompt.key_ids[span.start : span.end], below
            ):
                break
            found.append(block)
        return found

    def note(self, blocks: Sequence[KeptBlock], chain: PromptChain) -> None:
        """Blocks that came from elsewhere may be shared from now on, as far as they are clean."""
        for block in blocks:
            if block.clean:
                self._clean.setdefault(_key(chain, block.span.end), block)

    def release(self, blocks: Sequence[KeptBlock], chain: PromptChain) -> None:
        """Somebody needs these blocks no more.

        Args:
            chain: over the tokens of the blocks, or of more.
        """
        for block in blocks:
            self._blocks.release(block)
            if not block.needed and block.clean:
                key = _key(chain, block.span.end)
                if self._clean.get(key) is block:
                    del self._clean[key]

    def _block(
        self, slot: int, span: Span, below: KeptBlock | None, state: KeptState, chain: PromptChain
    ) -> KeptBlock:
        """The block of rows in place: one that is kept already, where it is the same."""
        standing = self._blocks.claimed(slot, span)
        if standing is not None:
            return standing
        clean = span.end <= state.taint and self._grid.has(span.end)
        ids, key_ids = state.ids[span.start : span.end], state.key_ids[span.start : span.end]
        found = self._clean.get(_key(chain, span.end)) if clean else None
        if found is not None and found.is_of(ids, key_ids, below):
            # All below it is the same by the same comparison, so both are what one cold prefill
            # of these tokens writes.
            self._blocks.claim(slot, found)
            return found
        block = KeptBlock(span, ids, key_ids, below, clean)
        self._blocks.claim(slot, block)
        if clean:
            self._clean[_key(chain, span.end)] = block
        return block


def _key(chain: PromptChain, line: int) -> tuple[Namespace, PrefixKey]:
    return chain.namespace, chain.key(line)
