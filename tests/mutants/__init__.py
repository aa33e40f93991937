"""Mutation testing: small changes of the code that must not go unnoticed."""
