"""Getting a tokenizer from transformers: the one place that touches its untyped side."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, cast

from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer, GenerationConfig, PretrainedConfig

from ...domain.errors import ModelNotFound, ModelRefused

Messages: TypeAlias = Sequence[Mapping[str, object]]
Tools: TypeAlias = Sequence[Mapping[str, object]]


class RenderTemplate(Protocol):
    """A model's chat template as a function."""

    def __call__(
        self,
        messages: Messages,
        tools: Tools,
        *,
        generation: bool,
        variables: Mapping[str, object],
    ) -> str:
        """The text of the messages, with the start of an answer when `generation` is set."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """What the adapter needs of a tokenizer.

    Attributes:
        backend: never changed after loading, which is what makes it safe between threads:
            transformers' own calls set truncation and padding on it each time.
        render: the chat template; None where the model has none.
        template: its source, for the fingerprint; "" where the model has none.
        reserved: names that are no variables of a template.
        end_tokens: the ids that the model's files name as ends.
    """

    backend: Backend
    render: RenderTemplate | None
    template: str
    reserved: frozenset[str]
    end_tokens: frozenset[int]


class _Loader(Protocol):
    """A class of transformers that reads itself from a directory or the hub."""

    def from_pretrained(self, place: str, /, **files: str | bool) -> object: ...


class _ConfigReader(Protocol):
    def get_config_dict(
        self, place: str, /, **files: str
    ) -> tuple[dict[str, object], dict[str, object]]: ...


class _HubTokenizer(Protocol):
    """The parts of transformers' tokenizer that are used."""

    chat_template: str | dict[str, str] | None
    eos_token_id: int | None

    def apply_chat_template(
        self,
        conversation: list[dict[str, object]],
        tools: list[dict[str, object]] | None,
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        **variables: object,
    ) -> str: ...


def load(source: str | Path) -> LoadedTokenizer:
    """The tokenizer at `source`: a directory, a GGUF file, or a Hugging Face id.

    Raises:
        ModelNotFound: there is no tokenizer.
        ModelRefused: it has no fast tokenizer.
    """
    place, files = str(source), dict[str, str]()
    if place.endswith(".gguf"):
        place, files = str(Path(source).parent), {"gguf_file": Path(source).name}
    try:
        # Said outright: left open, transformers asks on the terminal whether to run a model's code.
        found = cast("_Loader", AutoTokenizer).from_pretrained(
            place, trust_remote_code=False, **files
        )
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"no tokenizer can be read from {source}: {error}") from error
    backend = cast("object", getattr(found, "backend_tokenizer", None))
    if not isinstance(backend, Backend):
        raise ModelRefused(
            f"{source} has no fast tokenizer (tokenizer.json), which streaming and token "
            "boundaries need"
        )
    backend.no_truncation()
    backend.no_padding()
    tokenizer = cast("_HubTokenizer", found)
    ends = {*_configured_ends(place, files), tokenizer.eos_token_id} - {None}
    return LoadedTokenizer(
        backend=backend,
        render=_renderer(tokenizer) if tokenizer.chat_template else None,
        template=_source(tokenizer.chat_template),
        reserved=frozenset(inspect.signature(tokenizer.apply_chat_template).parameters),
        end_tokens=frozenset(cast("set[int]", ends)),
    )


def _renderer(tokenizer: _HubTokenizer) -> RenderTemplate:
    def render(
        messages: Messages,
        tools: Tools,
        *,
        generation: bool,
        variables: Mapping[str, object],
    ) -> str:
        return tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            [dict(tool) for tool in tools] or None,
            add_generation_prompt=generation,
            tokenize=False,
            **variables,
        )

    return render


def _source(template: str | dict[str, str] | None) -> str:
    """The template's text; of several, all of them with their names."""
    if isinstance(template, dict):
        return "\n".join(f"{name}\n{template[name]}" for name in sorted(template))
    return template or ""


def _configured_ends(place: str, files: Mapping[str, str]) -> frozenset[int]:
    """The end tokens that the model's configuration files name, where there are such files."""
    named: list[object] = []
    with suppress(OSError):  # many models have no generation_config.json
        generation = cast("_Loader", GenerationConfig).from_pretrained(place)
        named.append(getattr(generation, "eos_token_id", None))
    with suppress(OSError):  # and a directory may hold a tokenizer alone
        config, _ = cast("_ConfigReader", PretrainedConfig).get_config_dict(place, **files)
        named.append(config.get("eos_token_id"))
    ends: set[int] = set()
    for one in named:
        several = cast("list[object]", one) if isinstance(one, list) else [one]
        ends.update(token for token in several if isinstance(token, int))
    return frozenset(ends)
