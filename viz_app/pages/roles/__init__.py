"""The page Roles: what each head does."""
