"""Conversations: consecutive turns, and bodies that contain the earlier turns."""
