"""Conversations: turns that follow each other, and the bodies that contain the earlier turns."""
