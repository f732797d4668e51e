"""Checks a finished run or procedure against the requirements of the draft and gives a verdict."""
