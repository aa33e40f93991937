"""The demo: publication, queries and audit of an invented clinic in one minute.

    recipe      the table, drawn by a fixed recipe
    questions   its spec, what is asked of it, what to type next
    worth       what one published row tells
    compared    truth and estimate side by side
    picture     the same, drawn
    folder      where it is left, whole or not at all
    screen      how it looks, on a terminal and elsewhere
    story       the steps, in order

Nothing is downloaded, and the same text appears each time.
"""
