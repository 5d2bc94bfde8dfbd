"""Models that bind tools by name: they read no schemas, so none are written out."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool


class BindsByName(BaseChatModel):
    """A chat model whose tools are bound by their names alone, where callbacks see them."""

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,  # noqa: ARG002 - the interface
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind the tools' names."""
        names = [{"name": tool.name} for tool in tools if isinstance(tool, BaseTool)]
        return self.bind(tools=names, **kwargs)
