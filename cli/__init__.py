"""The command line: one file a group of commands; `app` joins them and turns errors into exit codes."""
