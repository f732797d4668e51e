"""Charts as SVG: axes, marks, plots, forest plots."""
