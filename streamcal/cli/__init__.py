"""The command line. Connectors are reached through entry points only."""
