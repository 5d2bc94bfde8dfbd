"""What values look like in running text."""

import pytest

from langchain_spectool.speculators.patterns.shapes import Text, token_shapes, value_shapes


@pytest.mark.parametrize(
    ("token", "shape"),
    [
        ("anna@example.org", "email"),
        ("2024-05-20", "date"),
        ("19122", "9{5}"),
        ("#W2378156", "#A{1}9{7}"),
        ("yusuf_rossi_9620", "a_a_9"),
        ("8JX2WO", "code6"),
        ("HATHAT", "code6"),
        ("src/app.py", "path"),
        ("app.py", "file"),
        ("https://example.org/a", "url"),
        ("3.5", "number"),
        ("Anna", "name"),
    ],
)
def test_token_has_shape(token: str, shape: str) -> None:
    """Ids, addresses, dates and names are told by their form."""
    assert shape in token_shapes(token)


def test_plain_word_has_no_shape() -> None:
    """An ordinary word is no value."""
    assert token_shapes("borrow") == ()


def test_shape_tells_nothing_of_the_value() -> None:
    """A mask keeps how an id is written, not what it says."""
    assert not any("rossi" in shape or "962" in shape for shape in value_shapes("rossi_9620"))


def test_values_come_in_order_of_text_and_once() -> None:
    """Values of one shape are listed as they were said."""
    text = Text("First L-0002, then L-0001 and L-0002 again.")
    assert list(text.find("A{1}-9{4}")) == ["L-0002", "L-0001"]


def test_names_of_people_are_split() -> None:
    """First and last of several capitalised words are values of their own."""
    text = Text("My name is Yusuf Rossi, zip 19122.")
    assert list(text.find("phrase:first")) == ["Yusuf"]
    assert list(text.find("phrase:last")) == ["Rossi"]


@pytest.mark.parametrize(
    ("said", "date"),
    [
        ("on May 20th", "????-05-20"),
        ("on May 20, 2024", "2024-05-20"),
        ("the 3rd of June", "????-06-03"),
        ("12 Sept 2023", "2023-09-12"),
    ],
)
def test_spoken_dates_become_iso(said: str, date: str) -> None:
    """A date in words is the date a tool wants; a missing year stays open."""
    assert date in Text(said).find("monthday")


def test_long_text_is_searched_at_both_ends() -> None:
    """Neither the start nor the end of a long text is lost."""
    found = Text("L-0001 " + "word " * 9_000 + "L-0002").find("A{1}-9{4}")
    assert list(found) == ["L-0001", "L-0002"]
