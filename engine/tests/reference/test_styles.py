"""How the tiny models write, and how they are read."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_spectool.errors import RenderingError
from vllm_spectool.reference import CHATML, LLAMA, STYLES, Call, Style
from vllm_spectool.reference.blocks import BlockPool
from vllm_spectool.reference.calls import Parsed, hermes_read, json_read
from vllm_spectool.reference.engine import Engine
from vllm_spectool.reference.service import Reference, ReferenceSettings
from vllm_spectool.reference.template import ChatTemplate
from vllm_spectool.reference.tokenizer import Tokenizer

SPECIALS = LLAMA.special_tokens
TEXT = st.lists(st.text(max_size=3) | st.sampled_from([*SPECIALS, "\n\n", "tool", '{"'])).map(
    "".join
)


@given(TEXT.filter(lambda text: text.isascii() or max(text) < "\ud800"), st.booleans())
def test_tokens_lose_nothing(text: str, special: bool) -> None:
    """Any text comes back, whether special tokens' texts are read as such or not."""
    tokenizer = Tokenizer(SPECIALS)
    ids = tokenizer.encode(text, special=special)
    assert tokenizer.decode(ids) == text
    count = sum(text.count(each) for each in SPECIALS) if special else 0
    assert sum(map(tokenizer.is_special, ids)) == count


@pytest.mark.parametrize(
    ("read", "text", "calls"),
    [
        (hermes_read, "<tool_call>", None),
        (hermes_read, '<tool_call>\n{"arguments": {}}\n</tool_call>', None),
        (hermes_read, '<tool_call>\n{"name": 1}\n</tool_call>', None),
        (hermes_read, '<tool_call>\n{"name": "a", "arguments": []}\n</tool_call>', None),
        (hermes_read, '<tool_call>\n{"name": "a", "arguments": {"x": NaN}}\n</tool_call>', None),
        (hermes_read, '<tool_call>\n{"name": "a"}\n</tool_call>', (Call(name="a"),)),
        (hermes_read, "no call", ()),
        (json_read, '{"name": "a"', None),
        (json_read, '{"name": "a"} more', None),
        (json_read, '{"name": "a", "parameters": 1}', None),
        (json_read, '{"name": "a"}; {"name": "a"}', (Call(name="a"), Call(name="a"))),
        (json_read, "no call", ()),
        (json_read, "", ()),
    ],
)
def test_what_is_no_call_is_content(
    read: Callable[[str], Parsed], text: str, calls: tuple[Call, ...] | None
) -> None:
    """All of the text, where any part of it cannot be read."""
    assert read(text) == Parsed(None if calls else text or None, calls)


CALLS = [Call(name="a", params={"x": "é</tool_call"}), Call(name="b")]


@pytest.mark.parametrize("style", STYLES.values(), ids=lambda style: style.name)
def test_what_a_model_writes_is_read(style: Style) -> None:
    """Calls and content."""
    assert style.read(style.write("", CALLS)) == Parsed(None, tuple(CALLS))
    assert style.read(style.write("Hi.", [])) == Parsed("Hi.", ())


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url"}]},
        {"role": "user", "content": ["x"]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "["}}]},
        {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]},
    ],
)
def test_a_template_refuses_what_it_cannot_write(message: Any) -> None:
    """With an error of this package."""
    template = ChatTemplate(CHATML, Tokenizer(CHATML.special_tokens), [])
    with pytest.raises(RenderingError, match=r"must|cannot"):
        template.prompt([message])


def test_blocks_are_lines_of_text() -> None:
    """As vLLM joins them for a template that reads strings."""
    template = ChatTemplate(CHATML, Tokenizer(CHATML.special_tokens), [])
    blocks = [{"type": "text", "text": text} for text in ("a", "b")]
    joined = template.prompt([{"role": "user", "content": "a\nb"}])
    assert template.prompt([{"role": "user", "content": blocks}]) == joined


def test_blocks_are_given_whole_or_not_at_all() -> None:
    """And are taken back whole."""
    pool = BlockPool(4, 16)
    assert pool.fit("a", 17)
    assert not pool.fit("b", 33)
    assert pool.used == 2
    assert pool.fit("b", 32)
    assert pool.fit("a", 32)
    assert not pool.fit("a", 33)
    pool.free("a")
    pool.free("a")
    assert pool.used == 2


def test_a_pool_holds_at_least_one_context() -> None:
    """Otherwise a request could wait for ever."""
    with pytest.raises(ValueError, match="raise `blocks` or lower `context_tokens`"):
        Reference(settings=ReferenceSettings(blocks=511))
    assert isinstance(Reference(settings=ReferenceSettings(blocks=512)).engine, Engine)
