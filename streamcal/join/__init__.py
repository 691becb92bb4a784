"""The join of predictions with labels that come late, twice, early, or never."""
