"""The scripted models of `search_agent.py`: one that answers, one that guesses its next call.

Both read the same messages. The draft searches for every question and for every class it meets,
and follows no other hint, so it is wrong wherever the main model has a better idea.
"""

import json
import re
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from scripted import call, exchanges, say

_FILLERS = {
    "a",
    "an",
    "and",
    "does",
    "for",
    "how",
    "in",
    "is",
    "it",
    "of",
    "or",
    "the",
    "to",
    "which",
}
_CLASS_NAME = re.compile(r"\b(?:[A-Z][a-z]+){2,}\b")
_NAMED_FUNCTION = re.compile(r"\b(?:by|see|use) (\w+)\(\)")


class Findings:
    """What an agent was asked and has found so far, read from its messages."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        """Split the question, and sort what the tools brought."""
        asked = next(each.text for each in messages if each.type == "human")
        self.questions = [part.strip() + "?" for part in asked.split("?") if part.strip()]
        self.turns = exchanges(messages)
        self.results: dict[str, list[str]] = {}
        self.texts: dict[str, str] = {}
        for made, text in (pair for turn in self.turns for pair in turn):
            if made["name"] == "search_docs":
                found = [hit["doc_id"] for hit in json.loads(text)]
                self.results[made["args"]["query"]] = found
            else:
                self.texts[made["args"]["doc_id"]] = text

    def unread(self) -> list[str]:
        """Return the best document of each search, less what was read already.

        A whole module's text says too little of each of its parts: anything else goes first.
        """
        best = [
            next((each for each in found if "." in each), found[0])
            for found in self.results.values()
            if found
        ]
        return [each for each in dict.fromkeys(best) if each not in self.texts]

    def source_of(self, question: str) -> str:
        """Return the document that answers a question, of those that were read."""
        if _refers_back(question):
            return list(self.texts)[-1]
        found = [each for each in self.results[keywords(question)] if each in self.texts]
        functions = [each for each in found if _is_function(each)]
        return functions[0] if functions and "function" in question else found[0]


def keywords(question: str) -> str:
    """Return a question without the words that every question has."""
    words = re.findall(r"\w+", question.lower())
    return " ".join(word for word in words if word not in _FILLERS)


def _refers_back(question: str) -> bool:
    """Say whether a question can't be understood without the answer before it."""
    return re.search(r"\bit\b", question) is not None


def _is_function(doc_id: str) -> bool:
    return "." in doc_id and doc_id.rpartition(".")[2][0].islower()


def main_turn(messages: Sequence[BaseMessage]) -> AIMessage:
    """Write the main model's next turn: search, read, follow hints, read on, answer."""
    findings = Findings(messages)
    steps = (_search, _read, _follow_hints, _read_on)
    turn = steps[len(findings.turns)](findings) if len(findings.turns) < len(steps) else None
    return turn if turn is not None and turn.tool_calls else _answer(findings)


def _search(findings: Findings) -> AIMessage:
    clear = [each for each in findings.questions if not _refers_back(each)]
    return say(
        f"These are {len(findings.questions)} questions, {len(clear)} of which I can search for "
        "at once. What refers back to an earlier answer has to wait for it.",
        *(call("search_docs", query=keywords(each)) for each in clear),
    )


def _read(findings: Findings) -> AIMessage:
    doc_ids = findings.unread()
    return say(
        f"The best candidates are {', '.join(doc_ids)}. I read them all before I say anything, "
        "because a title alone can mislead.",
        *(call("read_doc", doc_id=each) for each in doc_ids),
    )


def _follow_hints(findings: Findings) -> AIMessage:
    functions = [
        f"{doc_id.rpartition('.')[0]}.{name}"
        for question in findings.questions
        if "function" in question and not _is_function(doc_id := findings.source_of(question))
        for name in _NAMED_FUNCTION.findall(findings.texts[doc_id])
    ]
    classes = [
        name
        for question in findings.questions
        if _refers_back(question)
        for name in _CLASS_NAME.findall(findings.texts[findings.source_of(question)])[:1]
    ]
    return say(
        f"Not all of it is answered: these texts point on to {', '.join(functions + classes)}. "
        "I look that up too.",
        *(call("read_doc", doc_id=each) for each in functions),
        *(call("search_docs", query=each) for each in classes),
    )


def _read_on(findings: Findings) -> AIMessage:
    doc_ids = findings.unread()
    return say(
        f"The last thing to read is {', '.join(doc_ids)}, which the remaining question is about.",
        *(call("read_doc", doc_id=each) for each in doc_ids),
    )


def _answer(findings: Findings) -> AIMessage:
    lines = []
    for number, question in enumerate(findings.questions, 1):
        source = findings.source_of(question)
        lines.append(f"{number}. {source}: {_quote(findings.texts[source], question)}")
    return say("\n".join(lines))


def _quote(text: str, question: str) -> str:
    """Return the sentence of a text that shares the most words with a question."""
    wanted = {word[:6] for word in keywords(question).split()}
    sentences = re.split(r"(?<=[.:])\s+|\n\n", text)
    shared = [
        len(wanted & {word[:6] for word in re.findall(r"\w+", each.lower())}) for each in sentences
    ]
    return " ".join(sentences[shared.index(max(shared))].split())


def draft_turn(messages: Sequence[BaseMessage]) -> AIMessage:
    """Guess the main model's next calls from what the last turn's tools returned."""
    findings = Findings(messages)
    if not findings.turns:
        return say("", *(call("search_docs", query=keywords(each)) for each in findings.questions))
    guesses: list[ToolCall] = [call("read_doc", doc_id=each) for each in findings.unread()]
    if not guesses:
        last_texts = [text for made, text in findings.turns[-1] if made["name"] == "read_doc"]
        names = dict.fromkeys(name for text in last_texts for name in _CLASS_NAME.findall(text))
        unknown = [each for each in names if each not in findings.results]
        guesses = [call("search_docs", query=each) for each in unknown[:2]]
    return say("", *guesses)
