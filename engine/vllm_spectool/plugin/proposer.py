"""The proposer that vLLM has to be given where drafts come from the scheduler. Runs in a worker."""

import logging
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger("vllm.spectool")
KERNEL = "vllm.v1.sample.rejection_sampler.expand_kernel"


class NoDrafts:
    """Proposes nothing. It is there so that vLLM verifies what the scheduler offers."""

    def __init__(self, _: Any) -> None:
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return
        try:
            mend_expansion()
        except Exception as error:  # noqa: BLE001
            logger.warning("spectool could not look whether sampling works here: %r", error)

    def load_model(self, *_: Any, **__: Any) -> None:
        """Load nothing."""

    def propose(self, sampled_token_ids: Sequence[Any], *_: Any, **__: Any) -> list[list[int]]:
        """Return no token for each request."""
        return [[] for _ in sampled_token_ids]


def mend_expansion() -> None:
    """Give vLLM another `expand_kernel` where its own for CPUs writes nothing.

    vLLM 0.32.0, `utils/cpu_triton_utils.py`, `_expand_kernel_impl`: the kernel writes into
    `_ensure_int64(output)`, which is a copy unless the output is int64, and, other than its
    siblings, the function does not copy the result back. Temperatures, `top_p` and `top_k` of all
    speculative decoding stay what was in memory before, so whatever is sampled is noise. Greedy
    requests do not come here.
    """
    import torch
    from vllm.triton_utils.dispatcher import register_kernels
    from vllm.v1.sample import rejection_sampler

    values, ends = torch.tensor([0.25, 0.5]), torch.tensor([1, 3], dtype=torch.int32)
    written = torch.full((3,), -1.0)
    rejection_sampler._expand(written, values, ends, 0, 0)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if not torch.equal(written, torch.tensor([0.25, 0.5, 0.5])):
        register_kernels({KERNEL: _expand})
        logger.info("spectool: sampling with speculative decoding is broken here, and was mended")


def _expand(
    output: Any, values: Any, ends: Any, replace_from: float, replace_to: float, *_: Any, **__: Any
) -> None:
    """Write each value as often as it has tokens; `ends` are where each one's tokens end."""
    import torch

    replaced = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    counts = torch.diff(ends, prepend=ends.new_zeros(1)).to(torch.int64)
    output.copy_(torch.repeat_interleave(replaced, counts))
