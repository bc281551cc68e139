"""Small tokenizers, trained on the fly in well under a second, and templates of several habits.

They stand for families of real models: byte-level vocabularies with ChatML (Qwen, SmolLM) and
sentencepiece-like ones with byte fallback (Llama 2, Mistral).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

MARKS: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>")
SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

_UNKNOWN: Final = "<unk>"

_CORPUS: Final = (
    "Anna lives in Rome. Ben lives in Paris. Where does Anna live? Tell me a short story.",
    "The user asks where Anna lives. The facts say that Anna lives in Rome.",
    "You are a helpful assistant. Answer in one sentence, and think before you answer.",
    'system user assistant tool {"name": "weather", "arguments": {"city": "Rome"}}',
    "Once upon a time there was a little fox who lived near the river in the old forest.",
)

CHATML: Final = """\
{%- if tools or messages[0].role in ['system', 'developer'] -%}
  {{- '<|im_start|>system\\n' -}}
  {%- if messages[0].role in ['system', 'developer'] -%}
    {{- messages[0].content + ('\\n\\n' if tools else '') -}}
  {%- endif -%}
  {%- if tools -%}
    {{- 'Tools:' -}}
    {%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\\n<think>\\n' + (message.reasoning_content or '') -}}
    {{- '\\n</think>\\n\\n' + message.content -}}
    {%- for call in message.tool_calls or [] -%}
      {{- '\\n' if message.content or not loop.first else '' -}}
      {{- '<tool_call>\\n{"name": ' + (call.function.name | tojson) + ', "arguments": ' -}}
      {%- if call.function.arguments is string -%}
        {{- call.function.arguments -}}
      {%- else -%}
        {{- call.function.arguments | tojson -}}
      {%- endif -%}
      {{- '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role in ['user', 'tool'] -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
  {%- elif not (loop.first and message.role in ['system', 'developer']) -%}
    {{- raise_exception('no role ' + message.role) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n<think>\\n' -}}
  {{- '\\n</think>\\n\\n' if enable_thinking is defined and not enable_thinking else '' -}}
{%- endif -%}
"""
"""Keeps all reasoning and opens the thinking block itself."""

FORGETFUL: Final = """\
{%- set last = namespace(user=-1) -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' -}}
  {%- if message.role == 'assistant' and loop.index0 > last.user -%}
    {{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' -}}
  {%- endif -%}
  {{- message.content -}}
  {%- for call in message.tool_calls or [] -%}
    {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' -}}
    {{- (call.function.arguments | tojson) + '}\\n</tool_call>' -}}
  {%- endfor -%}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '' -}}
"""
"""Keeps reasoning after the last user message only, as Qwen3 does; the model opens the block."""

STRICT: Final = """\
{%- if messages[0].role == 'system' -%}{{- raise_exception('System role not supported') -}}
{%- endif -%}
{%- if messages | length < 3 -%}{{- raise_exception('Conversation too short') -}}{%- endif -%}
{{- bos_token -}}
{%- for message in messages -%}
  {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
    {{- raise_exception('Roles must alternate') -}}
  {%- endif -%}
  {{- '[' + message.role + '] ' + message.content | trim + '<|im_end|>' -}}
{%- endfor -%}
{{- '[assistant] ' if add_generation_prompt else '' -}}
"""
"""Refuses partial conversations, system prompts and roles that do not alternate."""

DEFAULT_SYSTEM: Final = """\
{%- if messages[0].role != 'system' -%}
  {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '' -}}
"""
"""Brings a system prompt of its own, and renders any role."""


def byte_level(*, special_marks: bool = False, bos: bool = False) -> Tokenizer:
    """A byte-level BPE of about 500 tokens with ChatML's marks.

    Args:
        special_marks: the marks of reasoning and calls are special tokens, as some makers have it.
        bos: `<|endoftext|>` is put in front of a text.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=500,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[*SPECIALS, *MARKS],
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    # Training makes every fixed token a special one.
    state = json.loads(tokenizer.to_str())
    for added in state["added_tokens"][len(SPECIALS) :]:
        added["special"] = special_marks
    tokenizer = Tokenizer.from_str(json.dumps(state))
    if bos:
        _put_in_front(tokenizer, SPECIALS[0])
    return tokenizer


def sentencepiece_like() -> Tokenizer:
    """A BPE over words that start with U+2581, with tokens for single bytes, and a BOS."""
    tokenizer = Tokenizer(models.BPE(unk_token=_UNKNOWN, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    fixed = [_UNKNOWN, "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = BpeTrainer(vocab_size=450, show_progress=False, special_tokens=fixed)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    # Bytes are plain tokens of such a vocabulary.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    _put_in_front(tokenizer, "<s>")
    return tokenizer


def saved(
    tokenizer: Tokenizer,
    directory: Path,
    *,
    template: str | None = CHATML,
    eos: str = "<|im_end|>",
    bos: str | None = None,
    generation_ends: Sequence[int] = (),
) -> Path:
    """Write `tokenizer` as the files that transformers reads; returns `directory`."""
    tokenizer.save(str(directory / "tokenizer.json"))
    config: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos}
    if bos is not None:
        config["bos_token"] = bos
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (directory / "chat_template.jinja").write_text(template)
    if generation_ends:
        ends = json.dumps({"eos_token_id": list(generation_ends)})
        (directory / "generation_config.json").write_text(ends)
    return directory


def _put_in_front(tokenizer: Tokenizer, text: str) -> None:
    token = tokenizer.token_to_id(text)
    assert token is not None
    tokenizer.post_processor = TemplateProcessing(
        single=f"{text} $A", pair=f"{text} $A $B", special_tokens=[(text, token)]
    )
