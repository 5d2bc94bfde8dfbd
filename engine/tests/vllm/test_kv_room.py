"""Resident responses never wait for one another's blocks."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_spectool.plugin.kv_room import KvRoom


def test_all_of_them_have_to_fit_at_once() -> None:
    """In whole blocks, with the next token counted."""
    room = KvRoom(tokens=64, block_tokens=16)
    room.hold("a", 15)
    room.hold("b", 16)
    assert room.held == 1 + 2
    assert room.most("a") == 31
    assert room.most("b") == 47
    assert room.most("c") == 15
    room.free("b")
    assert room.most("a") == 63
    assert room.most("c") == 47


def test_without_a_limit_everything_fits() -> None:
    """VLLM did not say how large its cache is."""
    assert KvRoom().most("a") > 10**9


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400)), max_size=60))
def test_growth_that_was_allowed_fits_together(wishes: list[tuple[int, int]]) -> None:
    """Whatever the order: those that went on fit into the cache together."""
    room = KvRoom(tokens=800, block_tokens=16)
    for owner, tokens in wishes:
        if tokens <= room.most(owner):
            room.hold(owner, tokens)
        else:
            room.free(owner)
        assert room.held <= 800 // 16
