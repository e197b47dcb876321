"""End-to-end latency: from the time of an event in Kafka to the moment at which a sink shows what came of it."""
