"""What stops change, and what they save."""
