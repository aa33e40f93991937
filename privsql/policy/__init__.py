"""Disclosure policy, decided between scan and reconstruction."""
