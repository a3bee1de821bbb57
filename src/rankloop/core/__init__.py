"""Types, the learner protocol, capabilities, errors, random numbers, the codec, the registry and presets."""
