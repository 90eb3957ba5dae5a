"""A conversation of several turns: the client keeps the history, the server keeps none."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from client.requests import Floats, TurnOptions, new_turn_id
from client.responses import TurnChunk
from python_backends.ordering.exchange import Exchange
from python_backends.ordering.order import Order, order_after
from python_backends.ordering.prompt import Utterance

if TYPE_CHECKING:
    from client.turns import AsyncTurnClient, TurnClient


class Conversation:
    """Turn after turn with one server; `history` grows by what was heard and what was answered.

    Of an answer that was broken off, only the pieces that had arrived are remembered.
    """

    def __init__(self, client: "TurnClient", *, session_id: str | None = None) -> None:
        self.session_id = session_id or new_turn_id()
        self.history: list[Utterance] = []
        self._client = client

    @property
    def order(self) -> Order:
        """What has been confirmed so far, with its total: what the next turn's prompt will say."""
        return _confirmed(self.history)

    def turn(
        self,
        audio: Floats,
        *,
        turn_id: str | None = None,
        traceparent: str | None = None,
        options: TurnOptions | None = None,
    ) -> Iterator[TurnChunk]:
        """Say `audio`, float32 [samples] at 16 kHz; closing the iterator stops the turn."""
        exchange = Exchange()
        history, session_id = list(self.history), self.session_id
        with self._client.turn(
            audio,
            history,
            turn_id=turn_id,
            session_id=session_id,
            traceparent=traceparent,
            options=options,
        ) as stream:
            try:
                for chunk in stream:
                    exchange.add(chunk.heard, chunk.text)
                    yield chunk
            finally:
                self.history += exchange.utterances


class AsyncConversation:
    """`Conversation` for asyncio."""

    def __init__(self, client: "AsyncTurnClient", *, session_id: str | None = None) -> None:
        self.session_id = session_id or new_turn_id()
        self.history: list[Utterance] = []
        self._client = client

    @property
    def order(self) -> Order:
        """See Conversation."""
        return _confirmed(self.history)

    async def turn(
        self,
        audio: Floats,
        *,
        turn_id: str | None = None,
        traceparent: str | None = None,
        options: TurnOptions | None = None,
    ) -> AsyncIterator[TurnChunk]:
        """Say `audio`, float32 [samples] at 16 kHz; closing the iterator stops the turn."""
        exchange = Exchange()
        history, session_id = list(self.history), self.session_id
        stream = self._client.turn(
            audio,
            history,
            turn_id=turn_id,
            session_id=session_id,
            traceparent=traceparent,
            options=options,
        )
        async with aclosing(stream):
            try:
                async for chunk in stream:
                    exchange.add(chunk.heard, chunk.text)
                    yield chunk
            finally:
                self.history += exchange.utterances


def _confirmed(history: list[Utterance]) -> Order:
    return order_after(line.text for line in history if line.role == "assistant")
