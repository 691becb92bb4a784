"""HTTP: predictions and labels in, probabilities out, through the pipeline of a run and into its store."""
