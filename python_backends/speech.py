"""The form of synthesised speech, shared by acoustic stage, vocoder graph and trainer."""

SAMPLE_RATE_HZ = 24_000
FRAME_HZ = 80
HOP = SAMPLE_RATE_HZ // FRAME_HZ
"""Samples a frame."""

N_FFT = 4 * HOP
BINS = N_FFT // 2 + 1
NOISE = 2 * BINS
"""Standard normal values the vocoder takes per frame: a real and an imaginary part per bin."""

LATENT = 64
CHANNELS = LATENT + 2
"""Channels of the flow decoder: LATENT, then normalised log F0, then voicing (above 0: voiced)."""

CONTEXT_FRAMES = 5
"""Frames the vocoder needs on either side of a chunk; it returns sound for the frames between."""

DURATIONS = 64
"""Duration tokens: 0..63, in units of FRAMES_PER_TICK frames; 0 is read as 1."""

PHONEMES = 178
"""Size of the phoneme alphabet (Kokoro's)."""

SILENCE = 0
"""Phoneme of the silence at both ends of a piece."""

FRAMES_PER_TICK = 2
PITCHES = 33
"""Pitch tokens: 0 unvoiced, 1..32 log-spaced bins of F0."""

MIN_F0_HZ = 40.0

VOICES = ("alto", "baritone")
"""Who may speak; a voice's place here is its number in the graphs."""
