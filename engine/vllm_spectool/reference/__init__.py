"""A tiny engine with the plugin's API and semantics, for tests and laptops.

Needs the extra `reference`: `pip install vllm-spectool[reference]`.
"""

from vllm_spectool._core.params import Call
from vllm_spectool.reference.model import Model, Prompt, Said, Turn, call, laptop_model, scripted
from vllm_spectool.reference.response import ModelError, Response
from vllm_spectool.reference.server import serving
from vllm_spectool.reference.service import Reference, ReferenceSettings
from vllm_spectool.reference.styles import CHATML, DRIFTING, LLAMA, STYLES, Style

__all__ = [
    "CHATML",
    "DRIFTING",
    "LLAMA",
    "STYLES",
    "Call",
    "Model",
    "ModelError",
    "Prompt",
    "Reference",
    "ReferenceSettings",
    "Response",
    "Said",
    "Style",
    "Turn",
    "call",
    "laptop_model",
    "scripted",
    "serving",
]
