"""Models that score rows against a cache. They know no drafter, rule, sampling or session."""
