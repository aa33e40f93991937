"""The commands: demo; publish, advise, key, audit; query, shell; serve, user; completion."""
