"""Mode ``auto``: candidate maps on windows of labels, mixed with weights that follow their losses."""
