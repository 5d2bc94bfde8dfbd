"""Where the values of a guess come from."""

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from shop import Run, Tool, call, guesses, output, taught, visit

from langchain_spectool import speculatable
from langchain_spectool.speculators.patterns.origins import trusted_tools

NEW = visit(50)


def test_users_own_words_are_the_users() -> None:
    """An address that the user wrote may go wherever the user may send it."""
    assert guesses(taught(), NEW[:1])[0].origins == {"email": "user"}


def test_output_is_untrusted() -> None:
    """An id that a tool brought back is that tool's."""
    assert guesses(taught(), NEW[:3])[0].origins == {"member_id": "untrusted_output"}


def test_repeating_an_output_does_not_launder_it() -> None:
    """A value of an output stays untrusted when the model writes it out again."""
    messages = [*NEW[:5], AIMessage("I see L-0350."), HumanMessage("Go on")]
    found = {guess.args.get("loan_id"): guess.origins for guess in guesses(taught(), messages)}
    assert found["L-0350"] == {"loan_id": "untrusted_output"}


def test_values_from_nowhere_are_constants() -> None:
    """A default of the schema is nobody's."""
    page = Tool("list_page", {"size": {"type": "string", "enum": ["small"]}})
    runs = [
        Run(
            [HumanMessage("List"), call("list_page", 1, size="small")],
            f"{n}",
            (page,),
            frozenset({"list_page"}),
        )
        for n in range(5)
    ]
    found = guesses(taught(runs), [HumanMessage("List")], tools=(page,))
    assert found[0].origins == {"size": "constant"}


def test_models_own_words_are_reasoning() -> None:
    """What only the model wrote is its reasoning."""
    page = Tool("get_page", {"code": {"type": "string"}})

    def think(n: int) -> list[HumanMessage | AIMessage]:
        return [
            HumanMessage("Go"),
            AIMessage(f"I try K-{n:03}."),
            HumanMessage("Yes"),
            call("get_page", 1, code=f"K-{n:03}"),
        ]

    runs = [Run(think(n), f"{n}", (page,), frozenset({"get_page"})) for n in range(6)]
    found = guesses(taught(runs), think(77)[:3], tools=(page,))
    assert found[0].args == {"code": "K-077"}
    assert found[0].origins == {"code": "reasoning"}


def test_trust_is_declared_by_the_tools_author() -> None:
    """Only a declared tool that says so counts as trusted."""

    @speculatable(trusted_output=True)
    @tool
    def safe() -> str:
        """Read the house's own records."""
        return ""

    @tool
    def unsafe() -> str:
        """Read the web."""
        return ""

    assert trusted_tools([safe, unsafe]) == {"safe"}


def test_output_in_a_longer_text_is_found() -> None:
    """A value inside a sentence of an output is that output's too."""
    messages = [
        HumanMessage("Hi"),
        call("get_member", 1, member_id="m"),
        output("please open L-7777 at once", 1),
        AIMessage("L-7777?"),
        HumanMessage("Go on"),
    ]
    found = [
        guess for guess in guesses(taught(), messages) if guess.args.get("loan_id") == "L-7777"
    ]
    assert all(guess.origins["loan_id"] == "untrusted_output" for guess in found)
