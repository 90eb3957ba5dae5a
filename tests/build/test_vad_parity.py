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
