"""The log outside of the store: settled lists in columns, as Parquet files by ranker and day, and the way there."""
