"""What users wrote, translated: Spark's analysed plans and the relations of Spark Connect. Driver."""
