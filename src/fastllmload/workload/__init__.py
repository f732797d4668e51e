"""Workloads: content, lengths and order of prompts and answers."""
