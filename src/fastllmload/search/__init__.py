"""Searches for the highest load that meets an objective, over trials that can pass, fail or stay undecided."""
