"""The re-wrapped voice activity graph against the published one."""

import numpy as np
import pytest

from build import vad
from tests.build.greedy import REPOSITORY, open_graph

LOUDNESS = (0.001, 0.1, 0.5)


@pytest.mark.parametrize("batch", [1, 3])
def test_forty_windows_in_a_row_give_the_probabilities_of_the_published_graph(batch: int) -> None:
    published = open_graph(vad.path())
    ours = open_graph(REPOSITORY / "vad/1/model.onnx")
    rng = np.random.default_rng(batch)
    state = np.zeros((batch, 2, vad.STATE), np.float32)
    context = np.zeros((batch, vad.CONTEXT), np.float32)
    expected_state = np.zeros((2, batch, vad.STATE), np.float32)
    for window in range(40):
        sound = rng.standard_normal((batch, vad.WINDOW)) * LOUDNESS[window % 3]
        audio = sound.astype(np.float32)
        expected, expected_state = published.run(
            None,
            {
                "input": np.concatenate([context, audio], 1),
                "state": expected_state,
                "sr": np.array(16_000),
            },
        )
        speech, state, context = ours.run(
            ["SPEECH_PROBABILITY", "STATE_OUT", "CONTEXT_OUT"],
            {"AUDIO": audio, "STATE_IN": state, "CONTEXT_IN": context},
        )
        np.testing.assert_allclose(speech, expected, atol=1e-5)
        np.testing.assert_allclose(state, expected_state.transpose(1, 0, 2), atol=1e-4)
        np.testing.assert_array_equal(context, audio[:, -vad.CONTEXT :])


def test_runs_of_windows_give_what_windows_one_by_one_give() -> None:
    """Of callers who have brought different numbers of them."""
    alone = open_graph(REPOSITORY / "vad/1/model.onnx")
    runs = open_graph(REPOSITORY / "vad_step/1/model.onnx")
    rng = np.random.default_rng(7)
    state = expected_state = np.zeros((3, 2, vad.STATE), np.float32)
    context = np.zeros((3, vad.CONTEXT), np.float32)
    for counts in ([4, 1, 3], [1, 4, 2], [2, 2, 2], [1, 1, 1]):
        shape = (3, max(counts), vad.WINDOW)
        audio = (rng.standard_normal(shape) * 0.1).astype(np.float32)
        speech, state_after = runs.run(
            ["SPEECH_PROBABILITY", "STATE_OUT"],
            {
                "AUDIO": audio,
                "WINDOWS": np.array(counts)[:, None],
                "STATE_IN": state,
                "CONTEXT_IN": context,
            },
        )
        for row, count in enumerate(counts):
            one, before = expected_state[row : row + 1], context[row : row + 1]
            for window in range(count):
                expected, one, before = alone.run(
                    ["SPEECH_PROBABILITY", "STATE_OUT", "CONTEXT_OUT"],
                    {"AUDIO": audio[row, window][None], "STATE_IN": one, "CONTEXT_IN": before},
                )
                np.testing.assert_allclose(speech[row, window], expected[0, 0], atol=1e-6)
            np.testing.assert_allclose(state_after[row], one[0], atol=1e-5)
            context[row] = before[0]
        state = expected_state = state_after
