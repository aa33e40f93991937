"""The commands: demo; publish, advise, key, audit; info, query, shell; serve, user; completion."""
