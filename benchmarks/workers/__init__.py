"""What runs in processes of its own. Each module imports only what its environment has."""
