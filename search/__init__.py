"""Architecture search: data, training, strategies, trials, engine, experiments, tabular benchmark."""
