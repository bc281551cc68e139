"""The synthetic corpus of the embedded model `toy`.

Conversations are drawn at random from word lists and sentence patterns written for this project,
plus short noun glosses from WordNet (Debian package wordnet-base) when that is installed. The
largest share is recall: facts are told in the system prompt or in earlier turns and asked for
later, between other questions. Nothing here depends on torch; a corpus with the same seed repeats
exactly.

Run it to read some conversations: python scripts/toy_corpus.py --count 3
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

WORDNET_DIR: Final = Path("/usr/share/wordnet")
GLOSS_CHARS_MAX: Final = 60
SUM_MAX: Final = 20
COUNT_MAX: Final = 20
TURN_TOKENS: Final = 40
"""About what one question and its answer cost; `conversation` counts turns with it."""

NAMES: Final = (
    "Anna Ben Carla David Emma Felix Grace Hugo Iris Jack Kira Leo Mia Noah Olga Paul Quinn Rosa "
    "Sam Tina Uma Victor Wendy Zoe Alice Bob Clara Dora Eva Frank Greta Henry Ida John Karl Lena "
    "Maria Nina Oscar Peter Ruth Simon Tom Vera Walter Yara"
).split()
THINGS: Final = (
    "book key lamp hat ball cup coin map pen shoe clock ring box kite drum bag chair car boat bike"
).split()
COLOURS: Final = "red blue green yellow black white brown pink purple grey".split()
ANIMALS: Final = (
    "cat dog fox bear owl frog mouse horse duck rabbit wolf lion sheep goat hen fish"
).split()
FOODS: Final = (
    "apples bread cheese soup rice pears cake fish plums milk honey nuts tea beans corn eggs"
).split()
JOBS: Final = (
    "baker teacher doctor farmer painter singer writer cook pilot nurse driver tailor judge guard"
).split()
PLACES: Final = "forest garden river hill house sea farm park village lake".split()
CAPITALS: Final = {
    "France": "Paris", "Italy": "Rome", "Germany": "Berlin", "Spain": "Madrid", "England": "London",
    "Japan": "Tokyo", "Egypt": "Cairo", "Norway": "Oslo", "Peru": "Lima", "India": "Delhi",
    "Austria": "Vienna", "Greece": "Athens", "Ireland": "Dublin", "Portugal": "Lisbon",
    "Korea": "Seoul", "China": "Beijing", "Russia": "Moscow", "Poland": "Warsaw",
    "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Hungary": "Budapest",
    "Turkey": "Ankara", "Kenya": "Nairobi", "Cuba": "Havana", "Canada": "Ottawa",
    "Chile": "Santiago", "Iran": "Tehran", "Iraq": "Baghdad", "Nepal": "Kathmandu",
}  # fmt: skip
CITIES: Final = tuple(CAPITALS.values())
OPPOSITES: Final = (
    ("hot", "cold"), ("big", "small"), ("fast", "slow"), ("up", "down"), ("day", "night"),
    ("good", "bad"), ("old", "new"), ("happy", "sad"), ("open", "closed"), ("wet", "dry"),
    ("light", "dark"), ("hard", "soft"), ("loud", "quiet"), ("rich", "poor"), ("left", "right"),
    ("early", "late"), ("full", "empty"), ("strong", "weak"), ("clean", "dirty"), ("tall", "short"),
)  # fmt: skip
OPPOSITE_OF: Final = dict(OPPOSITES) | {b: a for a, b in OPPOSITES}
GREETINGS: Final = ("Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hello there!", "Good morning!")
SYSTEM_PROMPTS: Final = (
    "You are a helpful assistant.",
    "You are toy, a tiny language model.",
    "Answer in one sentence.",
    "You are a friendly assistant. Answer simple questions.",
)
SYLLABLES: Final = (
    "ba be bo da de do fa fi ga go ka ki ko la li lo ma mi mo na ni no pa po ra ri ro sa so ta ti "
    "to va vi vo za ze zo lan ren mar tor vin dal kas nel pim rus sol tam"
).split()
FACT_PREFIXES: Final = (
    "Remember these facts.",
    "You are a helpful assistant. Remember these facts.",
    "Here are some facts.",
    "You know these facts.",
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One question with the assistant's thinking and answer."""

    question: str
    thinking: str
    answer: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A kind of fact: patterns over {name} and {value}, and the kind of its values.

    The first question is the usual one. `answer` is empty when the statement itself is the answer.
    """

    weight: int
    values: str
    statement: str
    questions: tuple[str, ...]
    clause: str
    answer: str = ""


RELATIONS: Final = (
    Relation(
        30, "city", "{name} lives in {value}.",
        (
            "Where does {name} live?", "Tell me where {name} lives.",
            "In which city does {name} live?",
        ),
        "where {name} lives",
    ),
    Relation(
        20, "thing", "{name} has a {value}.",
        ("What does {name} have?", "Tell me what {name} has."),
        "what {name} has",
    ),
    Relation(
        20, "number", "The code of {name} is {value}.",
        ("What is the code of {name}?", "Tell me the code of {name}."),
        "the code of {name}",
    ),
    Relation(
        15, "food", "{name} likes {value}.",
        ("What does {name} like?", "Tell me what {name} likes."),
        "what {name} likes",
    ),
    Relation(
        10, "job", "{name} works as a {value}.",
        ("What is the job of {name}?", "What does {name} work as?"),
        "the job of {name}",
    ),
    Relation(
        10, "number", "{name} is {value} years old.",
        ("How old is {name}?", "Tell me how old {name} is."),
        "how old {name} is",
    ),
    Relation(
        8, "colour", "The favourite colour of {name} is {value}.",
        ("What is the favourite colour of {name}?",),
        "the favourite colour of {name}",
    ),
    Relation(
        8, "word", "The password of {name} is {value}.",
        ("What is the password of {name}?", "Tell me the password of {name}."),
        "the password of {name}",
    ),
    Relation(
        8, "pet", "The pet of {name} is called {value}.",
        ("What is the pet of {name} called?",),
        "what the pet of {name} is called",
    ),
)  # fmt: skip
OWN_RELATIONS: Final = (
    Relation(
        3, "name", "My name is {value}.", ("What is my name?", "Who am I?"),
        "your name", "Your name is {value}.",
    ),
    Relation(
        1, "city", "I live in {value}.", ("Where do I live?",),
        "where you live", "You live in {value}.",
    ),
    Relation(
        1, "food", "I like {value}.", ("What do I like?",),
        "what you like", "You like {value}.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that can be told and asked for later; `value` is what the answer must contain."""

    statement: str
    question: str
    answer: str
    clause: str
    value: str


@dataclass(frozen=True, slots=True)
class Difficulty:
    """How hard recall is.

    `facts_max` facts at most; `filler` is the chance that another sentence follows a fact in the
    system prompt, `rare` that a name is made up, `unknown` that a question has no answer.
    """

    facts_max: int
    filler: float = 0.0
    rare: float = 0.0
    unknown: float = 0.0


@dataclass(slots=True)
class Conversation:
    """A system prompt (may be empty) and the turns after it."""

    system: str
    turns: list[Turn] = field(default_factory=list)

    def messages(self, thinking: bool = True) -> list[dict[str, str]]:
        """The conversation as chat messages; without `thinking` every thinking block is empty."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns:
            messages.append({"role": "user", "content": turn.question})
            answer = {"role": "assistant", "content": turn.answer}
            if thinking:
                answer["reasoning_content"] = turn.thinking
            messages.append(answer)
        return messages


def with_article(noun: str) -> str:
    """The noun with its indefinite article."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def lower_first(sentence: str) -> str:
    """The sentence as it reads after 'that': names keep their capital."""
    if sentence.startswith(("The ", "You ", "Your ")):
        return sentence[0].lower() + sentence[1:]
    return sentence


def load_glosses(directory: Path = WORDNET_DIR) -> list[tuple[str, str]]:
    """Short glosses of common animals, foods, plants and artefacts: (noun, gloss) pairs.

    Reads WordNet's data.noun and the use counts in cntlist.rev. Returns an empty list when WordNet
    is not installed.
    """
    nouns, counts = directory / "data.noun", directory / "cntlist.rev"
    if not nouns.exists() or not counts.exists():
        return []
    uses: dict[str, int] = {}
    for line in counts.read_text(encoding="latin-1").splitlines():
        word, _, rest = line.partition("%")
        uses[word] = uses.get(word, 0) + int(rest.rpartition(" ")[2])
    glosses: dict[str, str] = {}
    for line in nouns.read_text(encoding="latin-1").splitlines():
        if line.startswith(" "):
            continue
        head, _, text = line.partition(" | ")
        fields = head.split()
        word, gloss = fields[4], text.partition(";")[0].strip()
        wanted = fields[1] in ("05", "06", "13", "20") and re.fullmatch("[a-z]{3,9}", word)
        if wanted and len(gloss) <= GLOSS_CHARS_MAX and uses.get(word, 0) >= 2:
            glosses.setdefault(word, gloss)
    return list(glosses.items())


class Corpus:
    """Draws conversations; the same seed gives the same ones."""

    def __init__(self, seed: int, glosses: list[tuple[str, str]]) -> None:
        self._random = random.Random(seed)
        self._glosses = glosses
        kinds: list[tuple[int, Callable[[], Turn]]] = [
            (3, self.greeting), (2, self.identity), (6, self.capital), (5, self.opposite),
            (9, self.addition), (3, self.story), (3, self.gloss if glosses else self.capital),
            (2, self.counting), (2, self.echo),
        ]  # fmt: skip
        self._weights = [weight for weight, _ in kinds]
        self._kinds = [kind for _, kind in kinds]
        draw = self._random.choice
        self._values: dict[str, Callable[[], str]] = {
            "name": lambda: draw(NAMES),
            "city": lambda: draw(CITIES),
            "thing": lambda: f"{draw(COLOURS)} {draw(THINGS)}",
            "number": lambda: str(self._random.randint(10, 99)),
            "food": lambda: draw(FOODS),
            "job": lambda: draw(JOBS),
            "colour": lambda: draw(COLOURS),
            "word": self.made_up_word,
            "pet": lambda: self.made_up_word().capitalize(),
        }

    def greeting(self) -> Turn:
        """Hello, thanks or goodbye."""
        pick = self._random.random()
        if pick < 0.5:
            answer = "Hello! How can I help you?"
            return Turn(self._random.choice(GREETINGS), "The user says hello.", answer)
        if pick < 0.65:
            return Turn("How are you?", "The user asks how I am.", "I am fine, thank you!")
        if pick < 0.8:
            question = self._random.choice(("Thank you!", "Thanks!", "Thank you"))
            return Turn(question, "The user says thanks.", "You are welcome!")
        question = self._random.choice(("Goodbye!", "Bye!", "Good night!"))
        return Turn(question, "The user says goodbye.", "Goodbye! See you soon.")

    def identity(self) -> Turn:
        """Who the model is and what it can do."""
        if self._random.random() < 0.7:
            question = self._random.choice(("Who are you?", "What are you?", "What is your name?"))
            answer = "I am toy, a tiny hybrid language model."
            return Turn(question, "The user asks who I am.", answer)
        question = self._random.choice(("What can you do?", "How can you help me?"))
        answer = "I can answer simple questions, add small numbers and tell short stories."
        return Turn(question, "The user asks what I can do.", answer)

    def capital(self, country: str | None = None) -> Turn:
        """The capital of a country."""
        country = country or self._random.choice(list(CAPITALS))
        city = CAPITALS[country]
        patterns = ("What is the capital of {}?", "Tell me the capital of {}.")
        question = patterns[self._random.random() < 0.15].format(country)
        thinking = f"I know that {city} is the capital of {country}."
        return Turn(question, thinking, f"The capital of {country} is {city}.")

    def opposite(self, word: str | None = None) -> Turn:
        """The opposite of a word."""
        word = word or self._random.choice(list(OPPOSITE_OF))
        other = OPPOSITE_OF[word]
        patterns = ("What is the opposite of {}?", "Tell me the opposite of {}.")
        question = patterns[self._random.random() < 0.15].format(word)
        thinking = f"I know that {word} and {other} are opposites."
        return Turn(question, thinking, f"The opposite of {word} is {other}.")

    def addition(self, pair: tuple[int, int] | None = None) -> Turn:
        """A sum of two numbers from 0 to SUM_MAX."""
        a, b = pair or (self._random.randint(0, SUM_MAX), self._random.randint(0, SUM_MAX))
        patterns = ("What is {} + {}?", "What is {} plus {}?")
        question = patterns[self._random.random() < 0.15].format(a, b)
        return Turn(question, f"I add {a} and {b}. That gives {a + b}.", f"{a} + {b} = {a + b}.")

    def story(self) -> Turn:
        """A story of six short sentences about an animal, and sometimes about a given person."""
        animal, name = self._random.choice(ANIMALS), self._random.choice(NAMES)
        hero = with_article(animal)
        if self._random.random() < 0.3:
            hero = f"{name} and {hero}"
        sentences = self._story_sentences(animal, name)
        return Turn(
            f"Tell me a story about {hero}.",
            f"I tell a short story about {hero}.",
            " ".join(sentences),
        )

    def counting(self) -> Turn:
        """The numbers up to a given one."""
        last = self._random.randint(3, COUNT_MAX)
        numbers = ", ".join(str(i) for i in range(1, last + 1))
        return Turn(f"Count to {last}.", f"I count from 1 to {last}.", f"{numbers}.")

    def echo(self) -> Turn:
        """Some words said again."""
        draw = self._random.choice
        words = [draw((draw(COLOURS), draw(THINGS), draw(ANIMALS), self.made_up_word()))
                 for _ in range(self._random.randint(1, 6))]  # fmt: skip
        text = " ".join(words)
        return Turn(f"Say this again: {text}", "I say the same words again.", text)

    def made_up_word(self) -> str:
        """A word of two or three syllables that (almost surely) no list holds."""
        return "".join(self._random.choices(SYLLABLES, k=self._random.randint(2, 3)))

    def gloss(self) -> Turn:
        """What a noun means, in WordNet's words."""
        word, gloss = self._random.choice(self._glosses)
        noun = with_article(word)
        thinking = f"The user asks what {noun} is."
        return Turn(f"What is {noun}?", thinking, f"{noun[0].upper()}{noun[1:]} is {gloss}.")

    def other(self) -> Turn:
        """Any turn that needs nothing from the context."""
        return self._random.choices(self._kinds, self._weights)[0]()

    def fact(self, relation: Relation, name: str = "") -> Fact:
        """One fact about a person, or about the user."""
        value = self._values[relation.values]()
        question = relation.questions[0]
        if self._random.random() < 0.15:
            question = self._random.choice(relation.questions)
        statement = relation.statement.format(name=name, value=value)
        return Fact(
            statement=statement,
            question=question.format(name=name),
            answer=relation.answer.format(value=value) or statement,
            clause=relation.clause.format(name=name),
            value=value,
        )

    def facts(self, count: int, rare: float = 0.0) -> list[Fact]:
        """Facts about people, no two that answer the same question; one in four shares its name."""
        names = list(NAMES)
        self._random.shuffle(names)
        facts: dict[str, Fact] = {}
        name = ""
        while len(facts) < count:
            if not name or not names or self._random.random() < 0.75:
                made_up = not names or self._random.random() < rare
                name = self.made_up_word().capitalize() if made_up else names.pop()
            relation = self._random.choices(RELATIONS, [r.weight for r in RELATIONS])[0]
            fact = self.fact(relation, name)
            facts.setdefault(fact.clause, fact)
        return list(facts.values())

    def recall(self, fact: Fact) -> Turn:
        """The question for a fact that the context holds."""
        thinking = f"The facts say that {lower_first(fact.answer)}"
        return Turn(fact.question, thinking, fact.answer)

    def unknown(self, known: list[Fact]) -> Turn:
        """A question for a fact that the context does not hold."""
        clauses = {fact.clause for fact in known}
        while (fact := self.facts(1)[0]).clause in clauses:
            pass
        thinking = f"The facts do not say {fact.clause}."
        return Turn(fact.question, thinking, f"I do not know {fact.clause}.")

    def told(self, fact: Fact) -> Turn:
        """A turn in which the user tells a fact."""
        heard = lower_first(fact.answer)
        question = fact.statement
        if fact.answer == fact.statement:
            question = f"Remember that {lower_first(fact.statement)}"
        return Turn(question, f"The user says that {heard}", f"I will remember that {heard}")

    def system_with(self, facts: list[Fact], filler: float) -> str:
        """A system prompt that holds the facts, with other sentences between them."""
        sentences = [self._random.choice(FACT_PREFIXES)]
        for fact in facts:
            sentences.append(fact.statement)
            if self._random.random() < filler:
                sentences.append(self._filler_sentence())
        return " ".join(sentences)

    def conversation(self, tokens: int, difficulty: Difficulty) -> Conversation:
        """A conversation of about `tokens` tokens, in four of five cases with facts to recall."""
        if self._random.random() < 0.2:
            system = self._random.choice(("", *SYSTEM_PROMPTS))
            turns = [self.other() for _ in range(max(1, tokens // TURN_TOKENS))]
            return Conversation(system, turns)
        count = self._random.randint(1, difficulty.facts_max)
        facts = self.facts(count, difficulty.rare)
        in_system = count if self._random.random() < 0.7 else self._random.randint(0, count)
        known, to_tell = facts[:in_system], facts[in_system:]
        if self._random.random() < 0.2:
            own = self._random.choices(OWN_RELATIONS, [r.weight for r in OWN_RELATIONS])[0]
            to_tell.append(self.fact(own))
        system = self._random.choice(("", *SYSTEM_PROMPTS))
        if known:
            system = self.system_with(known, difficulty.filler)
        count = max(1, (tokens - len(system) // 4) // TURN_TOKENS)
        return Conversation(system, self._recall_turns(count, known, to_tell, difficulty.unknown))

    def _recall_turns(
        self, count: int, known: list[Fact], to_tell: list[Fact], unknown: float
    ) -> list[Turn]:
        """Turns that tell the facts of `to_tell` and ask for what is known by then."""
        turns: list[Turn] = []
        known, to_tell, unasked = list(known), list(to_tell), list(known)
        for _ in range(count):
            pick = self._random.random()
            if to_tell and (not known or pick < 0.4):
                fact = to_tell.pop()
                known.append(fact)
                unasked.append(fact)
                turns.append(self.told(fact))
            elif pick < 0.75 and (unasked or pick < 0.5):
                if self._random.random() < unknown:
                    turns.append(self.unknown(known + to_tell))
                    continue
                # Facts not asked yet come first: a second answer is copied from the first.
                fact = self._random.choice(unasked or known)
                unasked = [other for other in unasked if other is not fact]
                turns.append(self.recall(fact))
            else:
                turns.append(self.other())
        return turns

    def _story_sentences(self, animal: str, name: str) -> list[str]:
        draw = self._random.choice
        colour, thing, place = draw(COLOURS), draw(THINGS), draw(PLACES)
        return [
            f"One day, {name} went to the {place}.",
            f"There {name} met a {colour} {animal}.",
            draw((f"The {animal} was sad because it had lost its {thing}.",
                  f"The {animal} was looking for a {thing}.")),
            draw((f"{name} wanted to help.", f'"I will help you," said {name}.')),
            draw((f"They looked under a big tree and found the {thing}.",
                  f"They walked all day and found the {thing} near the {place}.")),
            draw((f"The {animal} was very happy and they became good friends.",
                  f'"Thank you!" said the {animal}, and they played until night.')),
        ]  # fmt: skip

    def _filler_sentence(self) -> str:
        if self._glosses and self._random.random() < 0.5:
            return self.gloss().answer
        animal, name = self._random.choice(ANIMALS), self._random.choice(NAMES)
        return self._random.choice(self._story_sentences(animal, name))


def main() -> None:
    """Print some conversations."""
    parser = argparse.ArgumentParser(description="Print conversations of toy's corpus.")
    parser.add_argument("--count", type=int, default=3, help="how many conversations")
    parser.add_argument("--tokens", type=int, default=256, help="about how long each is")
    parser.add_argument("--facts", type=int, default=6, help="most facts in one conversation")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    glosses = load_glosses()
    print(f"{len(glosses)} glosses" if glosses else "WordNet is not installed: no glosses")
    corpus = Corpus(arguments.seed, glosses)
    for _ in range(arguments.count):
        difficulty = Difficulty(arguments.facts, filler=0.3, rare=0.1, unknown=0.05)
        talk = corpus.conversation(arguments.tokens, difficulty)
        print("-" * 40)
        for message in talk.messages():
            thinking = message.get("reasoning_content")
            print(f"{message['role']}: {f'({thinking}) ' if thinking else ''}{message['content']}")


if __name__ == "__main__":
    main()
