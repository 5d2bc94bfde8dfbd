"""Runs the drafting scheduler inside vLLM's, against a model that speaks from a script.

Run it with the Python that has vLLM. It keeps what was computed at each position, and fails where
that is not what stands there in the end.
"""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from vllm_spectool._core.terms import key_digest
from vllm_spectool.plugin.scheduler import DraftingScheduler
from vllm_spectool.serve import Drafts, drafting_flags

BLOCK, BLOCKS = 16, 400
FEW_BLOCKS = 17
"""Too few for five requests at once."""
STOP, BEHIND = 2, 999
"""What ends a turn, and what the model would say behind it."""
CALL = (11, 12, 20, 21, 30)
"""How each call begins."""
ARGUMENTS, TEXT, PROMPTS = range(40, 60), range(100, 300), range(400, 900)
"""Tokens of each kind; 77 is none of the model's."""
KEY = "k" * 32
SESSIONS = 30


class Unclamped(DraftingScheduler):
    """Goes on wherever vLLM would."""

    def _handle_stopped_request(self, request: Request) -> bool:
        return Scheduler._handle_stopped_request(self, request)


@dataclass(kw_only=True)
class Session:
    """A response that goes on in place, and what the model says in it."""

    request: Request
    turns: list[list[int]]
    stands: list[int]
    computed: dict[int, int] = field(default_factory=dict[int, int])
    turn: int = 0
    said: int = 0
    """Tokens of this turn so far."""

    def sampled(self, drafts: Sequence[int]) -> list[int]:
        """Return what the model says next, with the drafts it agrees with."""
        script = [*self.turns[self.turn], *[BEHIND] * len(drafts), BEHIND]
        next_up = script[self.said : self.said + len(drafts) + 1]
        agreed = 0
        while agreed < len(drafts) and drafts[agreed] == next_up[agreed]:
            agreed += 1
        return next_up[: agreed + 1]


class Simulation:
    """One scheduler, and sessions in it."""

    def __init__(
        self,
        config: Any,
        scheduler: type[Scheduler],
        dice: random.Random,
        *,
        blocks: int = BLOCKS,
        resumable: bool = True,
    ) -> None:
        config.cache_config.num_gpu_blocks = blocks
        attention = FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32
        )
        groups = [KVCacheGroupSpec(["layer"], attention)]
        self.scheduler = scheduler(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
            hash_block_size=BLOCK,
        )
        self.dice, self.resumable = dice, resumable
        self.hasher = get_request_block_hasher(BLOCK, sha256)
        self.sessions: dict[str, Session] = {}
        self.steps = 0

    def open(self, name: str, drafts: str) -> None:
        """Begin a session of three turns."""
        turns = [
            [*self.some(TEXT, 1, 6), *CALL, *self.some(ARGUMENTS, 3, 40), STOP] for _ in range(3)
        ]
        prompt = self.some(PROMPTS, 20, 60)
        request = self.request(name, prompt)
        self.sessions[name] = Session(request=request, turns=turns, stands=list(prompt))
        self.scheduler.add_request(request)
        for turn in turns if drafts != "none" else ():
            call = turn[turn.index(CALL[0]) :]
            offered = call if drafts == "right" else [*call[:7], *[77] * len(call[7:])]
            order = [key_digest(KEY), [[len(CALL), offered, 60.0]]]
            self.scheduler.take_drafts([order])

    def run(self) -> None:
        """Run to the end of all sessions."""
        while any(each.turn < len(each.turns) for each in self.sessions.values()):
            self.step()
        for each in self.sessions.values():
            last = len(each.stands) - 1
            assert [each.computed.get(at) for at in range(last)] == each.stands[:last]
        self.scheduler.finish_requests(list(self.sessions), RequestStatus.FINISHED_ABORTED)
        assert len(self.scheduler._book) == 0
        assert self.scheduler.get_kv_cache_usage() == 0

    def step(self) -> None:
        """Schedule, compute, sample and tell."""
        self.steps += 1
        assert self.steps < 10_000
        planned = self.scheduler.schedule()
        names = list(planned.num_scheduled_tokens)
        sampled = [
            self.compute(name, planned.scheduled_spec_decode_tokens.get(name, []), count)
            for name, count in planned.num_scheduled_tokens.items()
        ]
        told = self.scheduler.update_from_output(
            planned,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: at for at, name in enumerate(names)},
                sampled_token_ids=sampled,
            ),
        )
        for output in (each for outputs in told.values() for each in outputs.outputs):
            self.tell(self.sessions[output.request_id], output)

    def compute(self, name: str, drafts: Sequence[int], count: int) -> list[int]:
        """Compute positions, and sample where the last token is among them."""
        session = self.sessions[name]
        tokens = list(session.request.all_token_ids)
        begin = session.request.num_computed_tokens - count
        end = begin + count - len(drafts)
        for at, token in enumerate([*tokens[begin:end], *drafts], start=begin):
            session.computed[at] = token
        return session.sampled(drafts) if end >= len(tokens) else []

    def tell(self, session: Session, output: Any) -> None:
        """Read what came out, and go on where a turn has ended."""
        script = session.turns[session.turn]
        so_far = session.said + len(output.new_token_ids)
        assert output.new_token_ids == script[session.said : so_far]
        session.stands += output.new_token_ids
        session.said = so_far
        if output.finish_reason is None:
            return
        assert so_far == len(script)
        session.turn, session.said = session.turn + 1, 0
        if not self.resumable:
            session.turn = len(session.turns)
        if session.turn < len(session.turns):
            appended = self.some(PROMPTS, 5, 30)
            session.stands += appended
            self.scheduler.add_request(self.request(output.request_id, [STOP, *appended]))

    def request(self, name: str, tokens: list[int]) -> Request:
        """Return what adds tokens to a session."""
        params = SamplingParams(max_tokens=200, temperature=0, extra_args={"spectool_key": KEY})
        params.update_from_generation_config({}, STOP)
        return Request(
            name, list(tokens), params, None, block_hasher=self.hasher, resumable=self.resumable
        )

    def some(self, kinds: range, fewest: int, most: int) -> list[int]:
        """Return random tokens."""
        return self.dice.choices(kinds, k=self.dice.randrange(fewest, most))


def simulated(config: Any, scheduler: type[Scheduler], drafts: str, seed: int) -> int:
    """Run one to four sessions at once; return the steps taken."""
    simulation = Simulation(config, scheduler, random.Random(seed))  # noqa: S311
    for index in range(1 + seed % 4):
        simulation.open(f"session-{index}", drafts)
    simulation.run()
    return simulation.steps


def preempted(config: Any, drafts: str, seed: int) -> int:
    """Run five requests in a cache that is too small for them; return the preemptions."""
    dice = random.Random(seed)  # noqa: S311
    simulation = Simulation(config, DraftingScheduler, dice, blocks=FEW_BLOCKS, resumable=False)
    for index in range(5):
        simulation.open(f"request-{index}", drafts)
    simulation.run()
    return sum(each.request.num_preemptions for each in simulation.sessions.values())


def goes_wrong(config: Any, seed: int) -> bool:
    """Say whether vLLM's own end of a turn computes from what does not stand."""
    try:
        simulated(config, Unclamped, "right", seed)
    except AssertionError:
        return True
    return False


def main(model: str) -> None:
    """Print what came of it."""
    flags = drafting_flags(Drafts())
    init_none_hash(sha256)
    config = EngineArgs(
        model=model,
        dtype="float32",
        max_model_len=1024,
        enforce_eager=True,
        scheduler_cls=flags["--scheduler-cls"],
        speculative_config=json.loads(flags["--speculative-config"]),
    ).create_engine_config()
    config.cache_config.block_size = BLOCK
    seeds = range(SESSIONS)
    steps = {
        drafts: sum(simulated(config, DraftingScheduler, drafts, seed) for seed in seeds)
        for drafts in ("none", "right", "wrong")
    }
    told = {
        "sessions": SESSIONS,
        "steps": steps,
        "without the clamp": sum(goes_wrong(config, seed) for seed in seeds),
        "preemptions": {
            drafts: sum(preempted(config, drafts, seed) for seed in seeds)
            for drafts in ("none", "right", "wrong")
        },
    }
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
