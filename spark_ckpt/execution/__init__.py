"""What a translated query is, and how Spark runs it: lineage, chains, a query's start, the state it starts with."""
