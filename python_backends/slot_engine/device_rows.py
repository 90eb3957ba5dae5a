"""Rows on a GPU: TensorRT on pools that never leave it, tokens drawn there as well.

An engine has two profiles, each with a context of its own: decode (rows 0..n-1, one token each) and
prefill (a chunk of one row). Past and present of every layer are one address. A decode step is one
CUDA graph, with everything from the noise to the drawn tokens; there is one for each number of
rows, width of the context and way of drawing, and all are captured when the engine is opened. Per
command, tokens and ways of drawing go there, tokens and scores come back, and the stream is waited
for once.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.errors import InvalidInput, StageFailed
from python_backends.slot_engine import device_sampling
from python_backends.slot_engine.command import GREEDY, Decode, Drawn, Prefill, Sampling
from python_backends.slot_engine.device_sampling import Held
from python_backends.slot_engine.pools import Pools, pool_shapes, present_of
from python_backends.slot_engine.rows import Drawing, First, Rules
from python_backends.tensorrt.device import Device, Work
from python_backends.tensorrt.errors import EngineUnfit
from python_backends.tensorrt.runtime import ALIGNMENT, Bounds, Engine, Shape
from python_backends.tensorrt.staged import Staged

DECODE, PREFILL = 0, 1
"""The profiles of a step engine."""

Key = tuple[int, int, bool]
"""Rows of a decode step, width of their context, and whether all of them are plainly greedy."""


class DeviceMemory:
    """See Memory: tensors, each in the type that the engine has for it."""

    def __init__(self, device: Device, kinds: Mapping[str, str]) -> None:
        self._device = device
        self._kinds = kinds

    def zeros(self, name: str, shape: Shape) -> Any:
        """See Memory. EngineUnfit where TensorRT would refuse the address of a row."""
        pool = self._device.zeros(shape, self._kinds[name])
        if pool[0].nbytes % ALIGNMENT:
            raise EngineUnfit(
                f"a row of {name} takes {pool[0].nbytes} bytes, no multiple of {ALIGNMENT}: "
                "choose another capacity"
            )
        return pool

    def tokens(self, shape: Shape) -> Any:
        """See Memory."""
        return self._device.zeros(shape, "int64")

    def copy(self, view: Any) -> Any:
        """See Memory."""
        return view.clone()

    def borrowed(self, held: Any) -> Any:
        """See Memory."""
        self._device.used(held)
        return held

    def given(self, values: NDArray[Any]) -> Any:
        """See Memory."""
        return self._device.there(values)


class DeviceRows:
    """See Rows."""

    def __init__(
        self,
        engine: Engine,
        device: Device,
        *,
        slots: int,
        capacity: int,
        context: Sequence[str],
        rules: Rules,
    ) -> None:
        self._device, self._torch = device, device.torch
        self._rules = rules
        self._kinds = {name: tensor.dtype for name, tensor in engine.inputs.items()}
        self._slots = slots
        shapes = {name: tensor.shape for name, tensor in engine.inputs.items()}
        self.width = shapes["ids"][2] if len(shapes["ids"]) == 3 else 1
        self._noise = shapes["noise"][1] if "noise" in shapes else 0
        is_drawing = "next" in engine.outputs
        self.vocabulary = None if is_drawing else engine.outputs["logits"].shape[-1]
        self.longest_chunk = _longest_chunk(engine, slots)
        kv, sets = pool_shapes(
            shapes, slots=slots, capacity=capacity, context=context, widths=rules.context_widths
        )
        with device.working():
            memory = DeviceMemory(device, self._kinds)
            self.pools = Pools(kv, sets, self.width, memory)
            self._make_buffers(engine)
            self._contexts = [engine.context(number, device.stream) for number in (DECODE, PREFILL)]
            self._steps: dict[Key, Work] = {}
            self._capture_all()

    @contextmanager
    def command(self) -> Iterator[None]:
        """See Rows. However it ends, nothing of it is under way any more afterwards."""
        with self._device.working():
            self._free = iter(range(self._slots))
            try:
                yield
            finally:
                self._answers.fetch()
                self._device.synchronize()

    def prefill(self, part: Prefill) -> First:
        """See Rows; not captured, since no two chunks need be alike."""
        number = next(self._free, None)
        if number is None:
            raise InvalidInput(f"more than {self._slots} prompts in one command")
        count, width = len(part.tokens), self.pools.context.width_of(part.row, 1)
        orders = self._orders[number]
        self._tell(orders, [part.sampling], part.tokens, np.array([part.start]))
        if "clen" in self._kinds:
            orders.host["clen"][0] = self.pools.context.length[part.row]
        orders.send()
        told = orders.device
        own = self.pools.tokens[part.row, part.start : part.start + count]
        own.copy_(told["ids"][: count * self.width].view(count, self.width))
        listens = self._rules.no_speech is not None and part.start == 0
        if listens:
            self._run(PREFILL, told, part.row, 1, 1, width)
            self._hear(number)
        if self._noise:
            self._draw_noise(told, told["start"] + count, 1)
        self._run(PREFILL, told, part.row, 1, count, width)
        if part.is_last:
            self._draw_first(number, part.row, told, count, plain=self._is_plain([part.sampling]))
        return lambda: self._first(number, part.is_last, listens)

    def decode(self, part: Decode) -> Drawing:
        """See Rows: one graph."""
        count, width = len(part.tokens), self.pools.context.width_of(0, len(part.tokens))
        orders = self._orders[-1]
        self._tell(orders, part.sampling, part.tokens, part.starts)
        if "clen" in self._kinds:
            orders.host["clen"][:count] = self.pools.context.length[:count]
        orders.send()
        self._steps[count, width, self._is_plain(part.sampling)]()
        return lambda: Drawn(
            self._answers.host["tokens"][:count].copy(), self._answers.host["scores"][:count].copy()
        )

    def scrub(self, row: int) -> None:
        """See Rows."""
        with self._device.working():
            self.pools.scrub(row)

    def logits(self, row: int) -> NDArray[np.float32]:
        """See Rows; a copy, and the only call that is not for serving."""
        if self.vocabulary is None:
            raise StageFailed("this graph draws inside: it shows no logits")
        found: NDArray[np.float32] = self._logits[row].cpu().numpy()
        return found

    def _make_buffers(self, engine: Engine) -> None:
        """Orders: one set for each prompt of a command, the last one for the decode step."""
        slots, width = self._slots, self.width
        self._orders = [
            *(Staged(self._device, self._order(1, self.longest_chunk)) for _ in range(slots)),
            Staged(self._device, self._order(slots, 1)),
        ]
        self._answers = Staged(
            self._device,
            {
                "tokens": ((slots, width), "int64"),
                "scores": ((slots,), "float32"),
                "first_tokens": ((slots, width), "int64"),
                "first_scores": ((slots,), "float32"),
                "no_speech": ((slots,), "float32"),
            },
        )
        zeros = self._device.zeros
        self._logits = zeros((slots, self.vocabulary or 0), "float32")
        name = "logits" if self.vocabulary is not None else "next"
        out = engine.outputs[name]
        self._out_name = name
        self._outs = [zeros((rows, *out.shape[1:]), out.dtype) for rows in (slots, 1)]
        self._noises = zeros((slots, self._noise), "float32")
        self._suppressed = self._device.there(np.array(self._rules.suppress, np.int64))
        self._suppressed_first = self._device.there(np.array(self._rules.suppress_first, np.int64))

    def _order(self, rows: int, tokens: int) -> dict[str, tuple[Shape, str]]:
        own: dict[str, tuple[Shape, str]] = {
            "ids": ((rows * tokens * self.width,), "int64"),
            "start": ((rows,), "int64"),
            "clen": ((rows,), "int64"),
        }
        return own | device_sampling.layout(rows)

    def _tell(
        self,
        orders: Staged,
        how: Sequence[Sampling],
        tokens: NDArray[np.int64],
        starts: NDArray[np.int64],
    ) -> None:
        orders.host["ids"][: tokens.size] = tokens.reshape(-1)
        orders.host["start"][: len(starts)] = starts
        for row, one in enumerate(how):
            try:
                device_sampling.tell(orders.host, row, one)
            except ValueError as fault:
                raise InvalidInput(str(fault)) from fault

    def _capture_all(self) -> None:
        """Decode steps of every size. Rows are empty yet: what is written to them is wiped."""
        self._orders[-1].host["clen"][:] = 1
        self._tell(
            self._orders[-1], [GREEDY] * self._slots, np.zeros(0, np.int64), np.zeros(0, np.int64)
        )
        self._orders[-1].send()
        ways = (True,) if self.vocabulary is None else (True, False)
        for count in range(1, self._slots + 1):
            for width in self.pools.context.pools:
                for plain in ways:
                    self._steps[count, width, plain] = self._captured(count, width, plain=plain)
        for row in range(self._slots):
            self.pools.scrub(row)
        self._device.synchronize()

    def _captured(self, count: int, width: int, *, plain: bool) -> Work:
        told = {name: values[:count] for name, values in self._orders[-1].device.items()}
        told["ids"] = self._orders[-1].device["ids"][: count * self.width]
        places = told["start"][:, None, None].expand(count, 1, self.width)
        fresh = told["ids"].view(count, 1, self.width)
        rows = self.pools.tokens[:count]

        def prepare() -> None:
            self._bind(DECODE, told, 0, count, 1, width)

        def work() -> None:
            rows.scatter_(1, places, fresh)
            lengths = told["start"] + 1
            if self._noise:
                self._draw_noise(told, lengths, count)
            self._contexts[DECODE].execute()
            out = self._outs[DECODE][:count]
            if self.vocabulary is None:
                self._answers.device["tokens"][:count].copy_(out)
                return
            logits = self._shown(out, first=False)
            self._logits[:count].copy_(logits)
            held = Held(rows[:, :, 0], lengths)
            tokens, scores = self._draw(logits, told, held, plain=plain)
            self._answers.device["tokens"][:count, 0].copy_(tokens)
            self._answers.device["scores"][:count].copy_(scores)

        return self._device.captured(prepare, work)

    def _run(
        self, profile: int, told: Mapping[str, Any], row: int, count: int, tokens: int, width: int
    ) -> None:
        self._bind(profile, told, row, count, tokens, width)
        self._contexts[profile].execute()

    def _bind(
        self, profile: int, told: Mapping[str, Any], row: int, count: int, tokens: int, width: int
    ) -> None:
        """Shapes and addresses of rows row..row+count-1: those of a pool serve past and present."""
        context = self._contexts[profile]
        ids = (count, tokens) if self.width == 1 else (count, tokens, self.width)
        shapes: dict[str, Shape] = {"ids": ids, "start": (count,), "clen": (count,)}
        shapes["noise"] = (count, self._noise)
        addresses = {name: told[name].data_ptr() for name in ("ids", "start", "clen")}
        addresses["noise"] = self._noises.data_ptr()
        for name, pool in {**self.pools.kv, **self.pools.context.pools[width]}.items():
            shapes[name] = (count, *pool.shape[1:])
            addresses[name] = pool[row].data_ptr()
        for name in self._kinds:
            context.shape(name, shapes[name])
        past = {name: addresses[name] for name in self._kinds}
        present = {present_of(name): addresses[name] for name in self.pools.kv}
        context.bind({**past, **present, self._out_name: self._outs[profile].data_ptr()})

    def _draw_noise(self, told: Mapping[str, Any], positions: Any, count: int) -> None:
        places = self._torch.arange(self._noise, device=positions.device)
        noise = device_sampling.scaled_noise(self._torch, told, positions, places)
        self._noises[:count].copy_(noise)

    def _hear(self, number: int) -> None:
        """Whisper's probability of silence, behind the first token alone: see HostRows."""
        token = self._rules.no_speech
        share = self._torch.softmax(self._outs[PREFILL][0].float(), 0)[token]
        self._answers.device["no_speech"][number].copy_(share)

    def _draw_first(
        self, number: int, row: int, told: Mapping[str, Any], count: int, *, plain: bool
    ) -> None:
        if self.vocabulary is None:
            self._answers.device["first_tokens"][number].copy_(self._outs[PREFILL][0])
            return
        logits = self._shown(self._outs[PREFILL], first=True)
        self._logits[row].copy_(logits[0])
        held = Held(self.pools.tokens[row : row + 1, :, 0], told["start"] + count)
        tokens, scores = self._draw(logits, told, held, plain=plain)
        self._answers.device["first_tokens"][number].copy_(tokens)
        self._answers.device["first_scores"][number].copy_(scores[0])

    def _first(self, number: int, is_last: bool, listens: bool) -> tuple[Drawn | None, float]:
        found = self._answers.host
        silence = float(found["no_speech"][number]) if listens else 0.0
        if not is_last:
            return None, silence
        one = slice(number, number + 1)
        return Drawn(found["first_tokens"][one].copy(), found["first_scores"][one].copy()), silence

    def _is_plain(self, how: Sequence[Sampling]) -> bool:
        """No row needs more than the argmax, or the graph draws inside."""
        return self.vocabulary is None or all(one.is_greedy and one.is_plain for one in how)

    def _shown(self, logits: Any, *, first: bool) -> Any:
        """Logits without the tokens that are never drawn."""
        logits = logits.float().index_fill(1, self._suppressed, -self._torch.inf)
        return logits.index_fill(1, self._suppressed_first, -self._torch.inf) if first else logits

    def _draw(
        self, logits: Any, told: Mapping[str, Any], held: Held, *, plain: bool
    ) -> tuple[Any, Any]:
        scored = self._rules.no_speech is not None
        return device_sampling.draw(self._torch, logits, told, held, plain=plain, scored=scored)


def _longest_chunk(engine: Engine, slots: int) -> int:
    """What the profile of prefill takes. EngineUnfit unless both profiles are there, for so many
    rows."""
    if len(engine.profiles) <= PREFILL:
        raise EngineUnfit(f"{len(engine.profiles)} profiles; decode and prefill are needed")
    decode, prefill = (engine.profiles[number]["ids"] for number in (DECODE, PREFILL))
    rows = Bounds(decode.least, decode.most)
    if not rows.hold((slots, *rows.least[1:])) or not rows.hold((1, *rows.least[1:])):
        raise EngineUnfit(
            f"built for {rows.least[0]} to {rows.most[0]} rows, and there are {slots} slots"
        )
    return prefill.most[1]
