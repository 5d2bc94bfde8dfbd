"""The only code that knows LangGraph and LangChain's agents."""
