"""`python -m hil`: what only a board can tell, asked of one. Its tests have an emulated board."""
