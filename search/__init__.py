"""Architecture search: data, training, samplers, trials, engine, experiments, tabular benchmark."""
