"""Text and images of prompts, of exact lengths."""
