"""How we look: training one net, deciding what comes next, and where and when it runs."""
