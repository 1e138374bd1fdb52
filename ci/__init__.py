"""What `make` runs before the package exists: set-up and the lock. Standard library only."""
