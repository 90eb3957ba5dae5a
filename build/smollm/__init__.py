"""SmolLM2-135M-Instruct: weights, reference model, ordering LoRA, step graphs."""
