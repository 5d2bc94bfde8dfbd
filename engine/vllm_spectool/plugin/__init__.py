"""The tool cache inside vLLM's API server.

Only `endpoint` is named to vLLM, and only the API server loads it: nothing here runs in the engine
core or in a worker. vLLM is imported late, so that another release of it turns the plugin off
instead of breaking the server. `decisions/0015` says why it is built this way.
"""
