"""Train the embedded model `toy` and save it as a transformers folder.

The model is a small `qwen3_5_text`: [Gated DeltaNet, attention] twice, hidden 256. The script
trains the tokenizer (once; an existing one in the folder is kept) and the weights, and prints an
evaluation on draws that training never saw. It runs on the CPU; a checkpoint is kept so that an
interrupted run goes on. The folder must hold chat_template.jinja.

    python scripts/train_toy.py --minutes 72 --out models/toy
    python scripts/train_toy.py --evaluate-only --out models/toy
"""

from __future__ import annotations

import os

# Before torch is imported: spinning OpenMP threads stall small kernels on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import argparse
import json
import math
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from toy_corpus import (
    ANIMALS,
    CAPITALS,
    CITIES,
    COLOURS,
    FOODS,
    JOBS,
    NAMES,
    OPPOSITE_OF,
    PLACES,
    SUM_MAX,
    THINGS,
    Conversation,
    Corpus,
    Difficulty,
    Turn,
    load_glosses,
)
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

VOCABULARY: Final = 2048
WINDOW: Final = 8192
SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# Every newline is its own piece, so '<think>\n' is a prefix of '<think>\n\n</think>' in tokens too.
PIECES: Final = r"\n| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|[^\S\n]+(?!\S)|[^\S\n]+"
CONTEXT_WEIGHT: Final = 0.1
PEAK_RATE: Final = 4e-3
WARMUP_STEPS: Final = 100
WEIGHT_DECAY: Final = 0.01
REPORT_STEPS: Final = 50
CHECKPOINT_SECONDS: Final = 180
SCORE_SECONDS: Final = 600
HELD_OUT_SEED: Final = 1_000_003
ANSWER_TOKENS_MAX: Final = 160


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of the run, up to the share `until` of it.

    A batch is `batch` conversations of `length` tokens; in a share `thinking` of them the assistant
    thinks.
    """

    until: float
    batch: int
    length: int
    thinking: float
    difficulty: Difficulty


PHASES: Final = (
    Phase(0.20, 32, 128, 1.0, Difficulty(3)),
    Phase(0.50, 16, 256, 0.85, Difficulty(8, filler=0.2, rare=0.1, unknown=0.04)),
    Phase(0.80, 8, 512, 0.85, Difficulty(16, filler=0.4, rare=0.15, unknown=0.06)),
    Phase(1.00, 4, 1024, 0.85, Difficulty(32, filler=0.5, rare=0.15, unknown=0.06)),
)


# --- tokenizer ---------------------------------------------------------------------------------


def tokenizer_texts(corpus: Corpus) -> Iterator[str]:
    """What the tokenizer is trained on: conversations without markers, and the lists' words."""
    for _ in range(6000):
        talk = corpus.conversation(256, Difficulty(6, filler=0.2, rare=0.02, unknown=0.05))
        for message in talk.messages():
            yield from message.values()
    words = [*NAMES, *CITIES, *CAPITALS, *COLOURS, *THINGS, *ANIMALS, *FOODS, *JOBS, *PLACES]
    words += [*OPPOSITE_OF, *map(str, range(100)), "assistant", "system", "user"]
    for word in words:
        # With and without a leading space: both forms become one token.
        for _ in range(300):
            yield f"{word}\n {word}"


def train_tokenizer(corpus: Corpus, out: Path) -> None:
    """Train the byte-level BPE and write the tokenizer's two files.

    No normalizer: the text that is decoded must encode to the same tokens again.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIALS) - len(MARKERS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(tokenizer_texts(corpus), trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in MARKERS])
    assert tokenizer.get_vocab_size() == VOCABULARY
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": WINDOW,
        "clean_up_tokenization_spaces": False,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


# --- model -------------------------------------------------------------------------------------


def build_model(tokenizer: PreTrainedTokenizerBase) -> Qwen3_5ForCausalLM:
    """The untrained model.

    A quarter of each attention head is rotated: the rest compares contents at any distance, which
    is what recall needs beyond the lengths seen in training.
    """
    config = Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=384,
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_key_heads=4,
        linear_num_value_heads=4,
        linear_key_head_dim=32,
        linear_value_head_dim=64,
        linear_conv_kernel_dim=4,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
        },
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3_5ForCausalLM(config)


def save_model(model: Qwen3_5ForCausalLM, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Write config, generation config and fp32 weights into the folder."""
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(out)


# --- batches -----------------------------------------------------------------------------------


class Batches:
    """Endless training batches, tokenised as the chat template renders them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, corpus: Corpus) -> None:
        self._tokenizer, self._corpus = tokenizer, corpus
        self._think, self._end, self._newline = tokenizer.convert_tokens_to_ids(
            ["<think>", "<|im_end|>", "Ċ"]
        )
        self._drawn = 0

    def weights(self, ids: list[int]) -> list[float]:
        """The loss weight of each token as a target.

        1 for what the assistant writes, 0 for the empty thinking block (the prompt gives it, the
        model must never write it), `CONTEXT_WEIGHT` elsewhere.
        """
        weights = [CONTEXT_WEIGHT] * len(ids)
        writing = False
        for i, token in enumerate(ids):
            if i >= 2 and ids[i - 2] == self._think:
                writing = True
                if token == self._newline:
                    weights[i : i + 4] = [0.0] * len(weights[i : i + 4])
            if writing and weights[i] > 0:
                weights[i] = 1.0
            if token == self._end:
                writing = False
        return weights

    def batch(self, phase: Phase) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and target weights, both (batch, length + 1), padded on the right."""
        shape = (phase.batch, phase.length + 1)
        ids = torch.full(shape, self._tokenizer.pad_token_id, dtype=torch.long)
        weights = torch.zeros(shape)
        for row in range(phase.batch):
            self._drawn += 1
            thinking = self._drawn % 100 < 100 * phase.thinking
            talk = self._corpus.conversation(phase.length, phase.difficulty)
            text = self._tokenizer.apply_chat_template(talk.messages(thinking), tokenize=False)
            document = self._tokenizer(text).input_ids[: shape[1]]
            ids[row, : len(document)] = torch.tensor(document)
            weights[row, : len(document)] = torch.tensor(self.weights(document))
        return ids, weights


# --- training ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Progress:
    """How far a run is."""

    step: int = 0
    seconds: float = 0.0
    best: float = -1.0


def make_optimizers(model: Qwen3_5ForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embeddings, gates, convolutions and norms."""
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and min(parameter.shape) > 8 and "embed" not in name
        (matrices if is_matrix else rest).append(parameter)
    return [
        torch.optim.Muon(
            matrices, lr=PEAK_RATE, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(rest, lr=PEAK_RATE, weight_decay=WEIGHT_DECAY, betas=(0.9, 0.98)),
    ]


def learning_rate(step: int, share: float) -> float:
    """Linear warm-up, then a cosine down to a hundredth at the end of the run."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
    return PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * (0.01 + 0.99 * cosine)


def train_step(
    model: Qwen3_5ForCausalLM,
    optimizers: list[torch.optim.Optimizer],
    ids: torch.Tensor,
    weights: torch.Tensor,
    rate: float,
) -> float:
    """One update; returns the weighted loss."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    targets = weights[:, 1:].flatten()
    loss = (losses * targets).sum() / targets.sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def save_checkpoint(
    path: Path,
    model: Qwen3_5ForCausalLM,
    optimizers: list[torch.optim.Optimizer],
    progress: Progress,
) -> None:
    """Write everything a resumed run needs, by way of a temporary name."""
    state = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "progress": (progress.step, progress.seconds, progress.best),
    }
    temporary = path.with_suffix(".writing")
    torch.save(state, temporary)
    temporary.replace(path)


def load_checkpoint(
    path: Path, model: Qwen3_5ForCausalLM, optimizers: list[torch.optim.Optimizer]
) -> Progress:
    """Put a checkpoint's state in place; a fresh `Progress` when there is none."""
    if not path.exists():
        return Progress()
    state = torch.load(path)
    model.load_state_dict(state["model"])
    for optimizer, values in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(values)
    return Progress(*state["progress"])


def train(
    arguments: argparse.Namespace,
    model: Qwen3_5ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    glosses: list[tuple[str, str]],
) -> None:
    """The whole run; the folder always holds the best weights evaluated so far."""
    optimizers = make_optimizers(model)
    progress = load_checkpoint(arguments.checkpoint, model, optimizers)
    # A resumed run draws other conversations than those before it.
    batches = Batches(tokenizer, Corpus(arguments.seed + progress.step, glosses))
    started = time.monotonic() - progress.seconds
    saved = scored = time.monotonic()
    recent: list[float] = []
    share = 0.0
    while share < 1.0:
        progress.seconds = time.monotonic() - started
        share = run_share(arguments, progress)
        phase = next((phase for phase in PHASES if share < phase.until), PHASES[-1])
        rate = learning_rate(progress.step, share)
        model.train()
        recent.append(train_step(model, optimizers, *batches.batch(phase), rate))
        progress.step += 1
        if progress.step % REPORT_STEPS == 0:
            loss = sum(recent) / len(recent)
            print(f"step {progress.step} {progress.seconds:.0f} s ({share:.1%}) "
                  f"length {phase.length} loss {loss:.4f}", flush=True)  # fmt: skip
            recent.clear()
        now = time.monotonic()
        if now - scored > SCORE_SECONDS or share >= 1.0:
            score = quick_score(model, tokenizer, glosses)
            if score >= progress.best:
                progress.best = score
                save_model(model, tokenizer, arguments.out)
            scored = now
        if now - saved > CHECKPOINT_SECONDS or share >= 1.0:
            save_checkpoint(arguments.checkpoint, model, optimizers, progress)
            saved = now


def run_share(arguments: argparse.Namespace, progress: Progress) -> float:
    """How much of the run is done, 0 to 1."""
    if arguments.steps is not None:
        return progress.step / arguments.steps
    return progress.seconds / (60 * arguments.minutes)


# --- evaluation --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """Messages that end with a user's turn, and the word the answer must contain."""

    messages: list[dict[str, str]]
    expected: str


@dataclass(slots=True)
class Score:
    """How many answers were right, and how many ended by themselves."""

    asked: int = 0
    right: int = 0
    ended: int = 0

    def __str__(self) -> str:
        return f"{self.right}/{self.asked} right, {self.ended}/{self.asked} ended"


def generate(
    model: Qwen3_5ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    messages: list[dict[str, str]],
    thinking: bool = True,
) -> tuple[list[int], list[int]]:
    """Prompt ids and the greedily generated ids (the end token included)."""
    prompt = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, enable_thinking=thinking, return_dict=False
    )
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=ANSWER_TOKENS_MAX
        )
    return prompt, output[0, len(prompt) :].tolist()


def split_answer(text: str) -> tuple[str, str]:
    """Reasoning and content of generated text."""
    reasoning, _, content = text.removesuffix("<|im_end|>").rpartition("</think>\n\n")
    return reasoning.removesuffix("\n"), content


def grade(
    model: Qwen3_5ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    questions: list[Question],
    thinking: bool = True,
) -> Score:
    """Answer every question greedily and count."""
    score = Score()
    for question in questions:
        _, ids = generate(model, tokenizer, question.messages, thinking)
        _, content = split_answer(tokenizer.decode(ids))
        score.asked += 1
        score.right += bool(re.search(rf"\b{re.escape(question.expected)}\b", content))
        score.ended += ids[-1] == tokenizer.eos_token_id
    return score


def ask(turn: Turn, expected: str) -> Question:
    """A question without any context."""
    return Question([{"role": "user", "content": turn.question}], expected)


def recall_questions(corpus: Corpus, count: int, difficulty: Difficulty) -> list[Question]:
    """Questions for one of `facts_max` facts in the system prompt, or for one that is not there."""
    questions = []
    for i in range(count):
        known = corpus.facts(difficulty.facts_max, difficulty.rare)
        fact = known[i % len(known)]
        asked, expected = fact.question, fact.value
        if difficulty.unknown:
            asked, expected = corpus.unknown(known).question, "I do not know"
        system = {"role": "system", "content": corpus.system_with(known, difficulty.filler)}
        questions.append(Question([system, {"role": "user", "content": asked}], expected))
    return questions


def told_questions(corpus: Corpus, count: int, facts: int) -> list[Question]:
    """Questions for one of `facts` facts that the user told in earlier turns."""
    questions = []
    for i in range(count):
        known = corpus.facts(facts)
        asked = known[i % facts]
        talk = Conversation("", [corpus.told(fact) for fact in known])
        user = {"role": "user", "content": asked.question}
        questions.append(Question([*talk.messages(), user], asked.value))
    return questions


def addition_questions(count: int) -> list[Question]:
    """Sums spread evenly over all pairs."""
    corpus = Corpus(HELD_OUT_SEED, [])
    numbers = SUM_MAX + 1
    pairs = [divmod(i * numbers * numbers // count, numbers) for i in range(count)]
    return [ask(corpus.addition(pair), str(sum(pair))) for pair in pairs]


def quick_score(
    model: Qwen3_5ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    glosses: list[tuple[str, str]],
) -> float:
    """A cheap score, 0 to 1, printed during training and used to keep the best weights."""
    model.eval()
    corpus = Corpus(HELD_OUT_SEED + 1, glosses)
    exams = {
        "recall of 3": recall_questions(corpus, 24, Difficulty(3)),
        "recall of 10": recall_questions(corpus, 12, Difficulty(10, filler=0.5)),
        "capitals": [ask(corpus.capital(c), CAPITALS[c]) for c in list(CAPITALS)[::3]],
        "opposites": [ask(corpus.opposite(w), OPPOSITE_OF[w]) for w in list(OPPOSITE_OF)[::4]],
        "sums": addition_questions(12),
    }
    scores = {name: grade(model, tokenizer, questions) for name, questions in exams.items()}
    print("  " + ", ".join(f"{n} {s.right}/{s.asked}" for n, s in scores.items()), flush=True)
    return sum(score.right / score.asked for score in scores.values()) / len(scores)


def conversation_score(
    model: Qwen3_5ForCausalLM, tokenizer: PreTrainedTokenizerBase, corpus: Corpus, show: bool
) -> tuple[Score, int, int]:
    """A conversation of six turns, each built on the model's own answers.

    Returns the score, how many answers re-render to the very tokens generated, and its tokens.
    """
    known = corpus.facts(24)
    system = corpus.system_with(known, 1.0)
    turns = [corpus.recall(known[3]), corpus.addition(), corpus.recall(known[15])]
    turns += [corpus.capital(), corpus.recall(known[0]), corpus.opposite()]
    expected = [known[3].value, "", known[15].value, "", known[0].value, ""]
    messages = [{"role": "system", "content": system}]
    score, same, length = Score(), 0, 0
    for turn, value in zip(turns, expected, strict=True):
        messages.append({"role": "user", "content": turn.question})
        prompt, ids = generate(model, tokenizer, messages)
        reasoning, content = split_answer(tokenizer.decode(ids))
        answer = {"role": "assistant", "reasoning_content": reasoning, "content": content}
        messages.append(answer)
        again = tokenizer.apply_chat_template(messages, return_dict=False)
        same += again[: len(prompt) + len(ids)] == prompt + ids
        score.asked += 1
        score.right += value in content if value else content == turn.answer
        score.ended += ids[-1] == tokenizer.eos_token_id
        length = len(again)
    if show:
        print(json.dumps(messages, indent=1))
    return score, same, length


def evaluate(
    model: Qwen3_5ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    glosses: list[tuple[str, str]],
) -> None:
    """Print the evaluation that the model's README quotes."""
    model.eval()
    corpus = Corpus(HELD_OUT_SEED, glosses)
    exams = {
        "recall, 3 facts in the system prompt": recall_questions(corpus, 50, Difficulty(3)),
        "recall, 3 facts told in earlier turns": told_questions(corpus, 50, 3),
        "recall, 3 facts about made-up names": recall_questions(
            corpus, 50, Difficulty(3, rare=1.0)
        ),
        "recall, 10 facts between other sentences": recall_questions(
            corpus, 50, Difficulty(10, filler=0.5)
        ),
        "recall, 30 facts between other sentences": recall_questions(
            corpus, 25, Difficulty(30, filler=0.5)
        ),
        "saying so when the fact is not there": recall_questions(
            corpus, 25, Difficulty(5, unknown=1.0)
        ),
        "capitals": [ask(corpus.capital(c), city) for c, city in CAPITALS.items()],
        "opposites, both directions": [ask(corpus.opposite(w), o) for w, o in OPPOSITE_OF.items()],
        "sums": addition_questions(50),
    }
    for name, questions in exams.items():
        print(f"{name}: {grade(model, tokenizer, questions)}", flush=True)
    without = grade(model, tokenizer, exams["recall, 3 facts in the system prompt"], False)
    print(f"recall, 3 facts, thinking off: {without}", flush=True)
    total, same, lengths = Score(), 0, []
    for i in range(20):
        score, agree, length = conversation_score(model, tokenizer, corpus, show=i == 0)
        total.asked += score.asked
        total.right += score.right
        total.ended += score.ended
        same += agree
        lengths.append(length)
    print(f"six-turn conversations of {min(lengths)} to {max(lengths)} tokens: {total}")
    print(f"answers whose re-rendered tokens are the generated ones: {same}/{total.asked}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the embedded model toy.")
    parser.add_argument("--out", type=Path, default=Path("models/toy"), help="the model's folder")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=72.0, help="training time in all")
    length.add_argument("--steps", type=int, help="training steps in all, instead of minutes")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads")
    parser.add_argument("--seed", type=int, default=0, help="of weights and corpus")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=Path(tempfile.gettempdir()) / "anchorline-toy.pt",
        help="kept every few minutes; a run that finds one goes on from it",
    )
    parser.add_argument("--evaluate-only", action="store_true", help="no training")
    return parser.parse_args()


def main() -> None:
    """Train (unless told not to) and evaluate what the folder holds then."""
    arguments = parse_arguments()
    if not (arguments.out / "chat_template.jinja").exists():
        raise SystemExit(f"{arguments.out} holds no chat_template.jinja")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    glosses = load_glosses()
    print(f"{len(glosses)} glosses" if glosses else "WordNet is not installed: no glosses")
    if not (arguments.out / "tokenizer.json").exists():
        train_tokenizer(Corpus(arguments.seed, glosses), arguments.out)
    tokenizer = AutoTokenizer.from_pretrained(arguments.out)
    if not arguments.evaluate_only:
        train(arguments, build_model(tokenizer), tokenizer, glosses)
    evaluate(AutoModelForCausalLM.from_pretrained(arguments.out), tokenizer, glosses)


if __name__ == "__main__":
    main()
