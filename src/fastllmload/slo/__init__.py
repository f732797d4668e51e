"""Objectives: deadlines, goodput, fluidity, smooth goodput, capacity criteria."""
