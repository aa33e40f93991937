"""From a scan's small result to an answer: estimates, their errors, and what people hold."""
