"""Topics as tables for engines that read Arrow datasets, such as DuckDB."""
