"""What should be: decisions and documents as plain functions of what is known and the time."""
