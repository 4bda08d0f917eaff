"""The report: GPUs in service as a web page without a server, scripts or external resources."""
