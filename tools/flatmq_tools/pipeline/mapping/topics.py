"""Topic patterns: MQTT topic filters whose levels can have names.

    zigbee2mqtt/{device...}/availability

`{name}` matches one level and `{name...}` one or more; `+` and `#` are as in MQTT. A pattern with
`base` in front of it matches below that topic.
"""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"\{([a-z][a-z0-9_]*)(\.\.\.)?\}")


class TopicPattern:
    """A topic pattern, ready to match. ValueError says which rule it breaks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: tuple[str, ...] = ()
        levels = text.split("/")
        if not text:
            raise ValueError("must not be empty")
        mine, plain = [], []
        deep = ""
        for number, level in enumerate(levels):
            name = _NAME.fullmatch(level)
            if level == "#":
                if number < len(levels) - 1:
                    raise ValueError("# must be the last level")
                # "a/#" matches "a" too (MQTT 3.1.1, section 4.7.1.2).
                deep = r"(?:/[\s\S]*)?" if number else r"[\s\S]*"
                plain.append("#")
            elif level == "+":
                mine.append("[^/]*")
                plain.append("+")
            elif name:
                self._add(name[1])
                inner = r"[\s\S]+" if name[2] else "[^/]+"
                mine.append(f"(?P<{name[1]}>{inner})")
                plain.append("#" if name[2] else "+")
            elif set(level) & set("+#{}"):
                raise ValueError(
                    f"level {level!r}: must be a text, +, # at the end, {{name}} or {{name...}}, "
                    "where a name has the characters a-z, 0-9 and _"
                )
            else:
                mine.append(re.escape(level))
                plain.append(level)
        if sum("..." in level for level in levels) > 1:
            raise ValueError("only one level may be {name...}")
        # Section 4.7.2: a leading wildcard does not match $SYS and the like.
        start = r"(?!\$)" if plain[0] in ("+", "#") else ""
        self._pattern = re.compile(start + "/".join(mine) + deep)
        self.filter = "/".join(plain[: plain.index("#") + 1] if "#" in plain else plain)
        """The narrowest topic filter of MQTT that matches what this matches."""

    def _add(self, name: str) -> None:
        if name in self.names:
            raise ValueError(f"{{{name}}}: a name may be used once")
        self.names += (name,)

    def match(self, topic: str) -> dict[str, str] | None:
        """The named levels of a topic name that matches, None for one that does not."""
        found = self._pattern.fullmatch(topic)
        return None if found is None else found.groupdict()

    def __reduce__(self) -> tuple[Any, ...]:
        return TopicPattern, (self.text,)
