"""A tiny tokenizer: bytes, some longer pieces, and special tokens. The same in every process."""

import re
from collections.abc import Iterable, Sequence

_PIECES = (
    *(" the", " a", " of", " in", " is", " to", " and", "er", "on", "in", "at", "re", "st", "en"),
    *("\n\n", "\n", "  ", ": ", ", ", ". ", '": ', '", "', '": "', '{"', '"}', '"}}', "}}", "}\n"),
    *("<tool_call>", "</tool_call>", "tool", "<tool_response>", "</tool_response>", "function"),
    *('{"name": "', '"arguments": {', '"parameters": {', "user", "assistant", "system", "ipython"),
    *("weather", "search", "city", "query", "name", "type", "string", "result", "answer"),
)
_BYTES = 256


class Tokenizer:
    """Reads the longest piece first, so that pieces merge across the places where texts meet.

    `decode(encode(text, special=...))` is `text`, for any text that UTF-8 can write.
    """

    def __init__(self, special_tokens: Sequence[str]) -> None:
        self.special_tokens = tuple(special_tokens)
        longest_first = sorted(_PIECES, key=len, reverse=True)
        self._reader = re.compile("|".join(map(re.escape, longest_first)) + "|.", re.DOTALL)
        self._splitter = re.compile(f"({'|'.join(map(re.escape, self.special_tokens))})")
        texts = [*self.special_tokens, *_PIECES]
        self._ids = {text: _BYTES + index for index, text in enumerate(texts)}
        self._texts = [bytes([byte]) for byte in range(_BYTES)] + [each.encode() for each in texts]

    def id_of(self, special_token: str) -> int:
        """Return the id of a special token."""
        return self._ids[special_token]

    def is_special(self, token_id: int) -> bool:
        """Say whether an id is a special token's."""
        return _BYTES <= token_id < _BYTES + len(self.special_tokens)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the tokens of `text`; without `special`, special tokens' texts are text."""
        if not special:
            return list(self._plain(text))
        ids: list[int] = []
        for index, part in enumerate(self._splitter.split(text)):
            ids += [self._ids[part]] if index % 2 else self._plain(part)
        return ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """Return the text of tokens; a character cut in two reads as the replacement character."""
        return self.bytes_of(token_ids).decode(errors="replace")

    def bytes_of(self, token_ids: Iterable[int]) -> bytes:
        """Return the bytes of tokens."""
        return b"".join(self._texts[token_id] for token_id in token_ids)

    def _plain(self, text: str) -> Iterable[int]:
        for piece in self._reader.findall(text):
            if piece in self._ids:
                yield self._ids[piece]
            else:
                yield from piece.encode()
