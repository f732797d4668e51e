"""Objectives (SLOs): deadlines, goodput, benefit and smooth goodput."""
