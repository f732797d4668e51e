"""What decides whether statements of the draft are met, one module per subject in the order of the draft."""
