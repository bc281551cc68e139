"""The tokenizer without a vocabulary against the tokenizer contract."""

from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.ports.tokenizer import Tokenizer
from contract.tokenizer_contract import TokenizerContract


class TestToyTokenizer(TokenizerContract):
    def tokenizer(self) -> Tokenizer:
        return ToyTokenizer()
