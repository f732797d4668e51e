"""Plain English filler: grammatical sentences without meaning, from a seeded stream.

The first sentence of a text has about 50 random bits, so no two prompts share a cached block.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def split_words(words: str) -> tuple[str, ...]:
    return tuple(words.split())


NOUNS = split_words(
    "account answer apartment article battery bicycle bridge budget camera canal chapter choir circuit client closet "
    "coach coast column company concert contract cottage country courier cousin customer dataset deadline dentist "
    "desert diagram dinner district document engine essay evening exam factory farmer festival folder forest friend "
    "garage garden glacier guitar harbor history hospital hotel island journal journey kitchen "
    "ladder "  # prose: allow, part of a prompt
    "lake landlord "
    "language lawyer lecture lesson letter library machine manager market meadow medicine meeting memory message "
    "mirror model mountain museum neighbor network notebook novel office opera orchard package painter paper parcel "
    "parent passport pattern payment period piano picture pipeline planet platform player poem policy portrait "
    "printer problem process professor project proposal question railway recipe record report research river roof "
    "salary sample schedule school season server shelter signal singer soldier station storm story street student "
    "studio summer supplier surgeon surface teacher theater ticket tower tractor tradition train traveler treaty "
    "tunnel valley vessel village violin visitor volcano wallet warehouse weather website window winter workshop writer"
)
ADJECTIVES = split_words(
    "ancient available bitter blue brief broken calm careful certain cheap clever cold common complete cool curious "
    "daily dark deep different direct dry early easy empty entire exact famous fast final fine firm fresh full "
    "general gentle golden good great green happy hard heavy helpful hidden high honest huge hungry ideal important "
    "large late lazy light little local long loud lucky main modern narrow new noisy normal old open ordinary patient "
    "plain polite poor possible private proud public quick quiet rare ready recent red rich round safe second secret "
    "serious sharp short silent simple slow small smooth soft special steady steep strange strong sudden sweet tall "
    "thick thin tired typical useful usual warm weak white whole wide wild wise wonderful wooden wrong yellow young"
)
VERBS = split_words(
    "accepts answers avoids blocks borrows brings builds buys carries changes checks chooses cleans collects compares "
    "connects contains copies counts covers crosses cuts delays delivers describes draws enters explains feeds fills "
    "finds finishes follows gives guides helps hides holds ignores improves invites joins keeps leads learns leaves "
    "limits links lists loses loves makes marks measures meets misses moves names needs notices offers opens orders "
    "owns paints passes plans prefers prepares presents prints protects pulls pushes reaches reads receives records "
    "remembers removes repairs replaces reports requires returns saves sells sends serves shares shows signs solves "
    "starts studies supports takes teaches tests touches trades turns uses visits wants warns watches writes"
)
PLACES = split_words(
    "about above across after against along among around before "
    "behind below beside beyond near over through under"  # prose: allow, part of a prompt
)
OPENINGS = (
    "Can you explain why the", "Please summarize how the", "I would like to know whether the",
    "Write a story in which the", "Help me decide if the", "What happens when the", "My friend says that the",
    "Give me three reasons why the",
    "Translate this into plain words: the", "Compare the two cases in which the", "Yesterday I read that the",
    "Suppose that the", "Draft a polite note saying that the", "List the steps by which the",
)  # fmt: skip
LINKS = ("Then", "However", "Meanwhile", "In the end", "For example", "After that", "Every morning", "As a result")
POOL = 2048  # sentences


class Prose:
    """English text drawn from *seed*, without end."""

    def __init__(self, seed: str) -> None:
        self._stream = random.Random(seed)
        self._pool = [f"{pick(LINKS, self._stream)}, {self._clause()}." for _ in range(POOL)]
        self._lengths = [sentence.count(" ") + 1 for sentence in self._pool]

    def text(self, words: int) -> str:
        """Paragraphs of at least *words* words in all; the first sentence is unique."""
        stream = self._stream
        parts = [f"{pick(OPENINGS, stream)} {self._clause()[4:]}."]
        count = parts[0].count(" ") + 1
        while count < words:
            number = int(stream.random() * POOL)
            parts.append(self._pool[number])
            count += self._lengths[number]
            if len(parts) % 7 == 0:
                parts[-1] += "\n\n"
        return " ".join(parts).replace("\n\n ", "\n\n").rstrip("\n")

    def _clause(self) -> str:
        stream = self._stream
        return (
            f"the {pick(ADJECTIVES, stream)} {pick(NOUNS, stream)} {pick(VERBS, stream)} the {pick(ADJECTIVES, stream)} "
            f"{pick(NOUNS, stream)} {pick(PLACES, stream)} the {pick(NOUNS, stream)}"
        )


def pick(choices: Sequence[str], stream: random.Random) -> str:
    return choices[int(stream.random() * len(choices))]
