"""What a sandbox has changed of its image, as one archive: written and read by a process of its own."""
