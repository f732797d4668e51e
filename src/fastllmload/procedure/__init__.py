"""The ten tests of the IETF draft: declarations, preparation, levels, analysis, report."""
