"""The publisher's key.

randomness   draws as a pseudo-random function
fingerprint  the state of a source as a digest
ledger       what was published under a key
key          the key itself
"""
