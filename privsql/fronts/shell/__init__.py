"""The interactive shell: ``privsql shell release.duckdb``.

    keys ── terminal ─> text ── reading ──> statements and backslash commands
                                commands ─> what is about the shell itself
                                running ──> a statement on a thread of its own: Ctrl-C ends it
                                showing ──> answers, errors, notices as lines of a terminal
         <─ completing: what Tab offers while it is typed

The loop is ``loop``; everything but ``terminal`` works without one, for scripts.
"""
