"""Health and metrics of a server, for load balancers and Prometheus.

metrics   counters and latencies of one server
pages     the text of /health and /metrics
endpoint  a bounded HTTP server of a few pages
"""
