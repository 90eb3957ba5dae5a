"""What the sync and the async client share: how to dial, and what a broken call means."""

from typing import Any

import grpc
import grpc.aio

from python_backends.errors import (
    Cancelled,
    DeadlineMissed,
    InvalidInput,
    StageError,
    StageFailed,
    from_text,
    parse,
)

TIMEOUT_S = 60.0
CLOSE_S = 1.0
"""How long a stream may take to be closed by the server after an error."""

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A restarted server is found again within a second instead of up to five.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


def dial(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    """A channel to a server: over TLS with `credentials`, in plaintext without."""
    if credentials is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(address, credentials, options=CHANNEL_OPTIONS)


def dial_async(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    """`dial` for the running event loop."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)


def error_of(fault: Any, turn_id: str, timeout_s: float) -> StageError:
    """The StageError of a grpc.RpcError: what the server wrote, or what the status code says."""
    details = fault.details() or ""
    known = parse(details)
    if known:
        return known.at("", turn_id)
    match fault.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            late = f"no complete answer within {timeout_s:g} s"
            return DeadlineMissed(late, stage="client", turn=turn_id)
        case grpc.StatusCode.CANCELLED:
            return Cancelled("cancelled here", stage="client", turn=turn_id)
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidInput(details, turn=turn_id)
        case grpc.StatusCode.UNAVAILABLE:
            away = f"the server does not answer: {details}"
            return StageFailed(away, stage="client", turn=turn_id)
    return from_text(details, turn=turn_id)
