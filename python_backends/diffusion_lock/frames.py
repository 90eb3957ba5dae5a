"""From phoneme durations to frames: which phoneme a frame belongs to, and where in it it lies.

One implementation, used by serving and by the trainer of the flow decoder.
"""

import numpy as np
from numpy.typing import NDArray


def frame_positions(
    duration_frames: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Expands durations to frames.

    Args:
        duration_frames: int64 [P], frames of each phoneme (80 a second), none negative. A
            phoneme of no frames is skipped.

    Returns:
        frame_phoneme: int64 [T], index of the phoneme each frame belongs to, T = sum of durations.
        position: float32 [T, 3], per frame: its relative place in the phoneme, in (-0.5, 0.5); the
            log of its ordinal within the phoneme; the log of the phoneme's duration. The two logs
            are scaled to roughly unit range, as the flow decoder was trained on them.

    Raises:
        ValueError: `duration_frames` is not a vector or holds a negative number.
    """
    if duration_frames.ndim != 1 or (duration_frames < 0).any():
        raise ValueError("duration_frames must be a vector of non-negative frame counts")
    frame_phoneme = np.repeat(np.arange(len(duration_frames), dtype=np.int64), duration_frames)
    first_frame = np.cumsum(duration_frames) - duration_frames
    ordinal = np.arange(len(frame_phoneme)) - first_frame[frame_phoneme]
    duration = duration_frames[frame_phoneme]
    place = (ordinal + 0.5) / np.maximum(duration, 1) - 0.5
    position = np.stack(
        [place, np.log(ordinal + 1) / 3 - 0.5, np.log(np.maximum(duration, 1)) / 3 - 0.8], axis=-1
    )
    return frame_phoneme, position.astype(np.float32)
