"""Words that this project's English avoids, each with the usual word for it."""

from __future__ import annotations

import re

AVOIDED: dict[str, str] = {
    r"told|tell(?:s|ing)?(?! \w+ (?:\w+ )?apart)(?! apart)": "say, report, return, know",
    r"anew": "again, from scratch",
    r"wants|wanted": "needs, expects; in an error: must be",
    r"at the (?:most|least)": "at most, at least",
    r"in place of": "instead of",
    r"for good(?! (?:reasons?|measure))": "permanently, after a while",
    r"(?:if|where|when) not (?:told|given) (?:else|otherwise)": "unless given",
    r"hears? (?:of|about)": "learns of, receives",
    r"(?:takes?|knows?|sees?|needs?|wants?|gets?) (?:it|them|this) not": "does not ...",
    r"(?:knows?|takes?|gets?|needs) not": "does not ...",
    r"not anymore than": "no more than",
    r"(?:after|for) so long(?! as)": "for N seconds, after N seconds",
    r"(?:is|are) (?:not )?spoken": "is (not) supported",
    r"where(?:of|in|upon|by)|there(?:of|in|upon)|here(?:of|in|by)": "of which, in it, so",
    r"lest|ere|whilst|nought|naught|amongst|betwixt|oft": "so that ... not, before, while, among",
    r"till": "until",
}
"""A pattern of whole words, and what to write instead. A space matches a line break too."""

PATTERN = re.compile(
    r"\b(?:"
    + "|".join(f"(?P<w{i}>{each})" for i, each in enumerate(AVOIDED)).replace(" ", r"\s+")
    + r")\b",
    re.IGNORECASE,
)
_BETTER = list(AVOIDED.values())


def found(text: str) -> list[tuple[int, str, str]]:
    """Find the avoided words: offset, the words as written, and the usual ones."""
    return [
        (match.start(), match[0], _BETTER[int(str(match.lastgroup)[1:])])
        for match in PATTERN.finditer(text)
    ]
