"""The tool cache inside vLLM's API server, and what drafts arguments.

Only `endpoint` is named to vLLM, and only the API server loads it. vLLM is imported late, so that
another release of it turns the plugin off instead of breaking the server. With
`--draft-arguments`, and only then, `scheduler` runs in the engine core and `proposer` in the
workers. `decisions/0015` and `decisions/0016` say why it is built this way.
"""
