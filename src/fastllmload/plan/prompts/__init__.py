"""Bodies of single requests, by source: drawn prompts, data sets, images, token ids."""
