"""The file: read back, merged, and never the end of an agent."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from shop import first, guesses, taught, visit, visits

from langchain_spectool.errors import SpectoolError
from langchain_spectool.speculators.patterns.speculator import Patterns
from langchain_spectool.speculators.patterns.store import (
    PatternFileError,
    PatternFileWarning,
    read_patterns,
)

NEW = visit(50)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a file of learned patterns lies."""
    taught().save(tmp_path / "patterns.json")
    return tmp_path / "patterns.json"


def test_loaded_patterns_predict_as_the_saved_ones(path: Path) -> None:
    """What was learned survives the file, and needs no warm-up."""
    loaded = Patterns.load(path)
    assert loaded.warm_up == 0
    assert first(loaded, NEW[:7]) == first(taught(), NEW[:7])
    near = pytest.approx(guesses(taught(), NEW[:7])[0].confidence, abs=0.05)
    assert guesses(loaded, NEW[:7])[0].confidence == near


def test_file_that_is_missing_is_an_empty_model_and_a_warning(tmp_path: Path) -> None:
    """Who only reads has named a file that should be there: one warning names it and the remedy."""
    path = tmp_path / "none.json"
    with pytest.warns(PatternFileWarning) as caught:
        patterns = Patterns.load(path)
    (said,) = [str(each.message) for each in caught]
    assert said.startswith(f"{str(path)!r} is not there. Check the path, or say `missing_ok=True`.")
    assert patterns.models == {}
    assert patterns.warm_up > 0


def test_file_that_is_yet_to_be_saved_may_be_missing(tmp_path: Path) -> None:
    """The first start of an agent that saves its patterns needs no file and no word about it."""
    path = tmp_path / "none.json"
    patterns = Patterns.load(path, missing_ok=True, candidates=2)
    assert patterns.models == {}
    patterns.merge(taught())
    patterns.save(path)
    assert Patterns.load(path, missing_ok=True).models.keys() == {None}


def test_file_that_may_be_missing_may_not_be_damaged(tmp_path: Path) -> None:
    """What is there and cannot be read is said in any case."""
    path = tmp_path / "patterns.json"
    path.write_text("{")
    with pytest.warns(PatternFileWarning, match="is damaged"):
        Patterns.load(path, missing_ok=True)


def _without(name: str) -> str:
    content: dict[str, Any] = json.loads(_sample())
    del content["tenants"][""][name]
    return json.dumps(content)


def _sample() -> str:
    empty: dict[str, Any] = {
        "turns": 0, "contexts": {}, "signatures": {}, "arguments": {}, "kinds": {}, "joints": {},
        "ranker": {"examples": 0, "weights": {}, "marks": {}},
        "calibration": {"bins": {}, "tools": {}},
    }  # fmt: skip
    return json.dumps(
        {"format": "langchain-spectool patterns", "version": 1, "tenants": {"": empty}}
    )


BAD = {
    "cut": (_sample()[:100], "is damaged"),
    "empty": ("", "is damaged"),
    "deep": ("[" * 100_000, "is damaged"),
    "foreign": ('{"name": "package"}', "is no file of patterns"),
    "list": ("[]", "is no file of patterns"),
    "newer": (_sample().replace('"version": 1', '"version": 2'), "is of version 2"),
    "no version": (_sample().replace('"version": 1', '"version": null'), "is damaged"),
    "no table": (_without("contexts"), "is damaged"),
    "no number": (_sample().replace('"turns": 0', '"turns": "many"'), "is damaged"),
    "negative": (_sample().replace('"turns": 0', '"turns": -1'), "is damaged"),
    "not finite": (_sample().replace('"turns": 0', '"turns": NaN'), "is damaged"),
    "no pair": (_sample().replace('"bins": {}', '"bins": {"1": [1]}'), "is damaged"),
    "no total": (_sample().replace('"contexts": {}', '"contexts": {"^": {"U": 1}}'), "is damaged"),
    "tenants": ('{"format": "langchain-spectool patterns", "version": 1}', "is damaged"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_file_is_a_clear_error_and_an_empty_model(tmp_path: Path, fault: str) -> None:
    """Reading names the file, the fault and the remedy; loading warns so and starts empty."""
    text, said = BAD[fault]
    path = tmp_path / "patterns.json"
    path.write_text(text)
    with pytest.raises(PatternFileError, match=said) as caught:
        read_patterns(path)
    assert isinstance(caught.value, SpectoolError)
    assert str(path) in str(caught.value)
    with pytest.warns(PatternFileWarning, match="Starting with an empty model"):
        patterns = Patterns.load(path)
    assert patterns.models == {}
    assert guesses(patterns, NEW[:1])
    assert path.read_text() == text


def test_text_that_is_no_utf8_is_damaged(tmp_path: Path) -> None:
    """Bytes that are no text are as damaged as text that is no JSON."""
    path = tmp_path / "patterns.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PatternFileError, match="is damaged"):
        read_patterns(path)


def test_folder_in_place_of_a_file_is_a_warning(tmp_path: Path) -> None:
    """What the system refuses to read costs a warning, not the agent."""
    with pytest.warns(PatternFileWarning):
        assert Patterns.load(tmp_path).models == {}


def test_good_file_is_read_without_a_word(path: Path) -> None:
    """Reading a good file warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Patterns.load(path).models.keys() == {None}


def test_file_is_for_people_too(path: Path) -> None:
    """The file is sorted, split into lines, and small."""
    text = path.read_text()
    assert json.loads(text)["format"] == "langchain-spectool patterns"
    assert len(text.splitlines()) > 50
    assert len(text) < 100_000


def test_saving_fails_without_harm(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that breaks off leaves the old file and no other."""
    before = path.read_text()

    def refuse(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="disk full"):
        taught(visits(3)).save(path)
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]


def test_saving_again_changes_nothing(path: Path) -> None:
    """A file read and written is the same file."""
    again = path.with_name("again.json")
    Patterns.load(path).save(again)
    assert again.read_text() == path.read_text()


def test_order_of_merges_is_all_one(tmp_path: Path) -> None:
    """Three models added in any order are one model."""
    parts = [taught(visits(5, start=start)) for start in (1, 20, 40)]
    texts: set[str] = set()
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        merged = Patterns()
        for index in order:
            merged.merge(parts[index])
        merged.save(tmp_path / "merged.json")
        texts.add((tmp_path / "merged.json").read_text())
    assert len(texts) == 1


def test_merged_models_know_what_each_knew() -> None:
    """Counts add up, and nothing of the other is changed."""
    one, other = taught(visits(4)), taught(visits(4, start=20))
    turns = one.models[None].turns
    one.merge(other)
    assert one.models[None].turns == turns + other.models[None].turns
    assert first(one, NEW[:7]) == ("get_loan", {"loan_id": "L-0351"})


def test_items_become_public_by_merging(tmp_path: Path) -> None:
    """Runs of several models count together."""
    one, other = taught(visits(2)), taught(visits(2, start=20))
    one.save(tmp_path / "one.json")
    one.merge(other)
    one.save(tmp_path / "both.json")
    assert "$.loans" not in (tmp_path / "one.json").read_text()
    assert "$.loans" in (tmp_path / "both.json").read_text()


def test_tenants_keep_their_places_in_a_file(tmp_path: Path) -> None:
    """All tenants are written, or only those that are named."""
    patterns = taught([*visits(4, tenant="a"), *visits(4, tenant="b"), *visits(4)])
    patterns.save(tmp_path / "all.json")
    patterns.save(tmp_path / "a.json", tenants=["a"])
    assert read_patterns(tmp_path / "all.json").keys() == {None, "a", "b"}
    assert read_patterns(tmp_path / "a.json").keys() == {"a"}


def test_nobody_and_the_tenant_of_empty_name_are_two(tmp_path: Path) -> None:
    """Both survive, one beside the other, with what each of them learned."""
    patterns = taught([*visits(4), *visits(6, tenant=""), *visits(5, tenant="a")])
    patterns.save(tmp_path / "all.json")
    models = read_patterns(tmp_path / "all.json")
    assert models.keys() == {None, "", "a"}
    for tenant, model in models.items():
        assert model.turns == patterns.models[tenant].turns
    assert len({model.turns for model in models.values()}) == 3
    Patterns(models).save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "all.json").read_text()


@pytest.mark.parametrize("tenant", [None, "", "tenant of empty name", "tenants", "null", "None"])
def test_no_name_of_a_tenant_is_another(tmp_path: Path, tenant: str | None) -> None:
    """Whatever a tenant is called, it is read back as itself, alone or among others."""
    taught(visits(4, tenant=tenant)).save(tmp_path / "one.json")
    assert read_patterns(tmp_path / "one.json").keys() == {tenant}
    taught([*visits(4, tenant=tenant), *visits(4, tenant="b")]).save(
        tmp_path / "both.json", tenants=[tenant]
    )
    assert (tmp_path / "both.json").read_text() == (tmp_path / "one.json").read_text()


def test_damaged_tenant_of_empty_name_is_damage(tmp_path: Path) -> None:
    """It is checked like the others."""
    path = tmp_path / "patterns.json"
    path.write_text(json.dumps({**json.loads(_sample()), "tenant of empty name": []}))
    with pytest.raises(PatternFileError, match="is damaged"):
        read_patterns(path)
