"""What builds the documentation, and what runs h2dlint over published packages."""
