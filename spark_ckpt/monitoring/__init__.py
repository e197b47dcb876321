"""What people and monitors see of a job, read from its folder, while it runs or not. No Spark."""
