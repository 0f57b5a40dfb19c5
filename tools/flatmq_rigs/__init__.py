"""What the project measures, checks and proves itself with. Not part of the wheel."""
