"""Says of real chat templates whether a turn stays what it was once its call is answered.

Usage: templates_check.py TOKENIZER_FOLDER TEMPLATES_FOLDER, with the interpreter that has vLLM's
packages. Reads every *.jinja there. Prints JSON: verdict by file, `extends`, `drifts`, or why not.
Text only: where one drifts, its tokens do too.
"""

import json
import sys
from pathlib import Path
from typing import Any

from conversations import TOOLS, whole
from transformers import AutoTokenizer


def verdict(tokenizer: Any, template: str) -> str:  # noqa: ANN401 - transformers' own
    """Say whether the rendering after the first call begins with the one before it."""
    messages = whole("single", 0)
    # The id of a call is not the model's: a template that writes it cannot be continued.
    unknown = [*messages[:2], {**messages[2], "tool_calls": [_renamed(messages[2])]}]

    def render(messages: list, *, prompt: bool) -> str:
        return tokenizer.apply_chat_template(
            messages,
            tools=TOOLS,
            chat_template=template,
            add_generation_prompt=prompt,
            tokenize=False,
        )

    asked, called = render(messages[:2], prompt=True), render(unknown, prompt=False)
    answered = render(messages[:4], prompt=True)
    good = called.startswith(asked) and answered.startswith(called.rstrip())
    return "extends" if good else "drifts"


def _renamed(message: dict) -> dict:
    return {**message["tool_calls"][0], "id": "another00"}


def main(folder: Path, templates: Path) -> None:
    """Print a verdict for each template."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found: dict[str, str] = {}
    for path in sorted(templates.glob("*.jinja")):
        try:
            found[path.name] = verdict(tokenizer, path.read_text("utf-8"))
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            found[path.name] = f"cannot be rendered: {error!r}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
